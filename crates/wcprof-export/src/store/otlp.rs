//! Profiles to a request of OpenTelemetry's profiles signal: `POST /v1development/profiles`, protocol buffers.
//!
//! The signal is alpha. The messages are those of `opentelemetry-proto` 0.33 (protocol 1.10, in which the numbers of
//! `Sample`'s fields changed). Entry 0 of each table of the dictionary is empty, no entry is there twice, and none is
//! unused.

use std::hash::Hash;
use std::iter;

use indexmap::IndexSet;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use wcprof_text::terminal_name;

use super::profile::StoreProfile;
use super::push::PushedProfile;
use crate::pprof::proto;
use crate::pprof::tables::KERNEL;

/// The semantic conventions that the names of attributes are from.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The body of a request: a resource for each profile, whose attributes are its labels by OpenTelemetry's names, and its
/// process.
pub fn otlp_request(profiles: &[PushedProfile]) -> Vec<u8> {
    let mut dictionary = Dictionary::new();
    let resources = profiles.iter().map(|pushed| {
        let labels = pushed.labels.iter();
        let attributes = labels.map(|(name, value)| (attribute_name(name), text_value(value)));
        let process = process_attributes(&pushed.profile);
        let attributes = attributes.chain(process).map(|(key, value)| KeyValue {
            key: key.to_owned(),
            value: Some(value),
            ..KeyValue::default()
        });
        otlp::ResourceProfiles {
            resource: Some(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            }),
            schema_url: SCHEMA.to_owned(),
            scope_profiles: vec![otlp::ScopeProfiles {
                scope: Some(InstrumentationScope {
                    name: "wcprof".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                profiles: dictionary.profiles(&pushed.profile.message),
                schema_url: SCHEMA.to_owned(),
            }],
        }
    });
    let request = ExportProfilesServiceRequest {
        resource_profiles: resources.collect(),
        dictionary: Some(dictionary.into_message()),
    };
    request.encode_to_vec()
}

/// OpenTelemetry's name for what a label says. Stores make their own labels of these: Pyroscope refuses a request whose
/// attributes hold its `service_name` beside `service.name`.
fn attribute_name(label: &str) -> &str {
    match label {
        "service_name" => "service.name",
        "version" => "service.version",
        "host" => "host.name",
        "container_id" => "container.id",
        "pod" => "k8s.pod.uid",
        other => other,
    }
}

/// Which process it is; several of one name have no pid.
fn process_attributes(of: &StoreProfile) -> impl Iterator<Item = (&str, AnyValue)> {
    let pid = of.pid.map(|pid| AnyValue {
        value: Some(Value::IntValue(pid.0.into())),
    });
    let name = text_value(&terminal_name(&of.comm));
    let pid = pid.map(|pid| ("process.pid", pid));
    iter::once(("process.executable.name", name)).chain(pid)
}

fn text_value(text: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text.to_owned())),
    }
}

/// Entries by number.
struct Table<T>(IndexSet<T>);

impl<T: Hash + Eq + Default> Table<T> {
    fn new() -> Self {
        Self(IndexSet::from([T::default()]))
    }

    fn number(&mut self, entry: T) -> i32 {
        number(self.0.insert_full(entry).0)
    }

    fn into_list(self) -> Vec<T> {
        self.0.into_iter().collect()
    }
}

/// A location, which has no `Hash` in `otlp`; the attribute is its frame's type.
#[derive(PartialEq, Eq, Hash, Default)]
struct Location {
    address: u64,
    lines: Vec<otlp::Line>,
    mapping_index: i32,
    frame_type: Option<i32>,
}

impl From<Location> for otlp::Location {
    fn from(location: Location) -> Self {
        Self {
            address: location.address,
            mapping_index: location.mapping_index,
            lines: location.lines,
            attribute_indices: location.frame_type.into_iter().collect(),
        }
    }
}

/// What the profiles of a request share.
struct Dictionary {
    strings: Table<String>,
    mappings: Table<otlp::Mapping>,
    functions: Table<otlp::Function>,
    locations: Table<Location>,
    stacks: Table<otlp::Stack>,
    /// Key (a number of a string) and value.
    attributes: Table<(i32, String)>,
}

impl Dictionary {
    fn new() -> Self {
        Self {
            strings: Table::new(),
            mappings: Table::new(),
            functions: Table::new(),
            locations: Table::new(),
            stacks: Table::new(),
            attributes: Table::new(),
        }
    }

    fn into_message(self) -> otlp::ProfilesDictionary {
        let attributes = self.attributes.into_list().into_iter();
        let attributes = attributes.map(|(key_strindex, value)| otlp::KeyValueAndUnit {
            key_strindex,
            value: (key_strindex != 0).then(|| text_value(&value)),
            unit_strindex: 0,
        });
        otlp::ProfilesDictionary {
            mapping_table: self.mappings.into_list(),
            location_table: self.locations.0.into_iter().map(Into::into).collect(),
            function_table: self.functions.into_list(),
            link_table: vec![otlp::Link::default()],
            string_table: self.strings.into_list(),
            attribute_table: attributes.collect(),
            stack_table: self.stacks.into_list(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        self.strings.number(text.to_owned())
    }

    fn attribute(&mut self, key: &str, value: &str) -> i32 {
        let key = self.text(key);
        self.attributes.number((key, value.to_owned()))
    }

    /// A profile for each type of value, of the samples that have one: those of `of`, and the two that OpenTelemetry's eBPF
    /// profiler sends (`samples` on a CPU, each of a period, and `off_cpu` time).
    fn profiles(&mut self, of: &proto::Profile) -> Vec<otlp::Profile> {
        let locations: Vec<i32> = of.location.iter().map(|l| self.location(of, l)).collect();
        let of_type = |at: usize| of.sample.iter().map(move |sample| sample.value[at]);
        let (cpu, wall): (Vec<i64>, Vec<i64>) = of_type(0).zip(of_type(1)).unzip();
        let off_cpu = cpu.iter().zip(&wall).map(|(cpu, wall)| wall - cpu);
        let (period, mut rest) = (of.period.max(1), 0);
        // What is less than a period is in the next sample.
        let counts = cpu.iter().map(|cpu| {
            let time = rest + cpu;
            rest = time % period;
            time / period
        });
        let (off_cpu, counts) = (off_cpu.collect(), counts.collect());
        let kinds = [
            ("cpu", "nanoseconds", cpu),
            ("wall", "nanoseconds", wall),
            ("samples", "count", counts),
            ("off_cpu", "nanoseconds", off_cpu),
        ];
        let profiles = kinds.map(|(name, unit, values)| {
            let kind = self.value_type(name, unit);
            self.profile(of, &locations, kind, &values)
        });
        profiles
            .into_iter()
            .filter(|profile| !profile.samples.is_empty())
            .collect()
    }

    /// The samples with a value above 0 of one type; values by sample.
    fn profile(
        &mut self,
        of: &proto::Profile,
        locations: &[i32],
        kind: otlp::ValueType,
        values: &[i64],
    ) -> otlp::Profile {
        let samples = of
            .sample
            .iter()
            .zip(values)
            .filter(|(_, value)| **value > 0);
        let samples = samples.map(|(sample, value)| {
            let ids = sample.location_id.iter();
            let location_indices = ids.map(|id| locations[*id as usize - 1]).collect();
            let labels = sample.label.iter();
            let attributes = labels.flat_map(|label| {
                let value = text(of, label.str);
                match text(of, label.key) {
                    // All threads of a pool are one here.
                    "pool" => vec![("pool", value), ("thread.name", value)],
                    _ => vec![("state", value)],
                }
            });
            otlp::Sample {
                stack_index: self.stacks.number(otlp::Stack { location_indices }),
                attribute_indices: attributes.map(|(k, v)| self.attribute(k, v)).collect(),
                values: vec![*value],
                ..otlp::Sample::default()
            }
        });
        otlp::Profile {
            samples: samples.collect(),
            sample_type: Some(kind),
            time_unix_nano: of.time_nanos.unsigned_abs(),
            duration_nano: of.duration_nanos.unsigned_abs(),
            period_type: of
                .period_type
                .map(|kind| self.value_type(text(of, kind.r#type), text(of, kind.unit))),
            period: of.period,
            ..otlp::Profile::default()
        }
    }

    fn value_type(&mut self, name: &str, unit: &str) -> otlp::ValueType {
        otlp::ValueType {
            type_strindex: self.text(name),
            unit_strindex: self.text(unit),
        }
    }

    fn location(&mut self, of: &proto::Profile, location: &proto::Location) -> i32 {
        let mapping = (location.mapping_id as usize).checked_sub(1);
        let mapping = mapping.map(|at| &of.mapping[at]);
        let is_kernel = mapping.is_some_and(|mapping| text(of, mapping.filename) == KERNEL);
        let frame_type = if is_kernel { "kernel" } else { "native" };
        let lines = location.line.iter().map(|line| {
            let function = &of.function[line.function_id as usize - 1];
            let function = otlp::Function {
                name_strindex: self.text(text(of, function.name)),
                system_name_strindex: self.text(text(of, function.system_name)),
                filename_strindex: self.text(text(of, function.filename)),
                start_line: 0,
            };
            otlp::Line {
                function_index: self.functions.number(function),
                line: line.line,
                column: 0,
            }
        });
        let made = Location {
            // So that a store can name it by the build-id.
            address: mapping
                .and_then(|_| unnamed_address(of, location))
                .unwrap_or(0),
            lines: lines.collect(),
            mapping_index: mapping.map_or(0, |mapping| self.mapping(of, mapping)),
            frame_type: Some(self.attribute("profile.frame.type", frame_type)),
        };
        self.locations.number(made)
    }

    fn mapping(&mut self, of: &proto::Profile, mapping: &proto::Mapping) -> i32 {
        let build_id = text(of, mapping.build_id);
        let key = "process.executable.build_id.gnu";
        let build_id = (!build_id.is_empty()).then(|| self.attribute(key, build_id));
        let made = otlp::Mapping {
            filename_strindex: self.text(text(of, mapping.filename)),
            // Addresses are the file's own, wherever it is mapped.
            memory_limit: u64::MAX,
            attribute_indices: build_id.into_iter().collect(),
            ..otlp::Mapping::default()
        };
        self.mappings.number(made)
    }
}

/// The address, in the address space of its file, of a location that has no name: its module's name with an offset stands for it.
fn unnamed_address(of: &proto::Profile, location: &proto::Location) -> Option<u64> {
    let [line] = &location.line[..] else {
        return None;
    };
    let function = &of.function[line.function_id as usize - 1];
    let (_, offset) = text(of, function.name).rsplit_once("+0x")?;
    u64::from_str_radix(offset, 16).ok()
}

fn text(of: &proto::Profile, at: i64) -> &str {
    &of.string_table[at as usize]
}

fn number(at: usize) -> i32 {
    i32::try_from(at).unwrap_or(i32::MAX)
}
