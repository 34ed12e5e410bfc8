//! What profile stores get of random traces, and the requests around it.

use std::io::Read;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use proptest::prelude::*;
use prost::Message;
use wcprof_export::{
    PushedProfile, StoreLimits, StoreProfiles, otlp_request, parca_request, pyroscope_request,
};
use wcprof_profile::model::State;
use wcprof_trace::model::Span;
use wcprof_types::{BuildId, StackEnd, ThreadState, TimeNs};

use crate::exports::Exports;
use crate::formats::trace;
use crate::read::Pprof;
use crate::support::{MS, Maker};

const WIDE: StoreLimits = StoreLimits::PYROSCOPE;

/// The wall-clock time of the samples that pass.
fn sum(pprof: &Pprof, passes: impl Fn(&Pprof, &crate::proto::Sample) -> bool) -> u64 {
    let samples = pprof.0.sample.iter().filter(|one| passes(pprof, one));
    samples.map(|sample| sample.value[1] as u64).sum()
}

proptest! {
    /// Check that each state of a pool has its whole time, however few stacks and bytes are allowed, and
    /// that idle time and threads are not told apart.
    #[test]
    fn sums(maker in trace(), n_samples in 1..20_usize, n_bytes in prop::sample::select(vec![100, 1000, WIDE.n_bytes])) {
        let exports = Exports::of(&maker, None);
        let profile = &exports.profile;
        for idle in [false, true] {
            let profiles = StoreProfiles::new(profile, idle);
            let limits = StoreLimits { n_samples, n_bytes };
            let weight = |state: State| -> u64 {
                let rows = profile.rows.iter().filter(|row| row.state == state);
                rows.map(|row| row.weight).sum()
            };
            let shown = |state: &State| idle || !state.is_idle();
            let expected: u64 = State::ALL.into_iter().filter(shown).map(weight).sum();
            let Some(found) = profiles.of(0, limits) else {
                prop_assert_eq!(expected, 0);
                continue;
            };
            let pprof = Pprof::decode(&found.to_pprof());
            prop_assert_eq!(sum(&pprof, |_, _| true), expected);
            let on_cpu: u64 = State::ALL.into_iter().filter(|state| state.is_running()).map(weight).sum();
            let cpu: i64 = pprof.0.sample.iter().map(|sample| sample.value[0]).sum();
            prop_assert_eq!(cpu as u64, on_cpu);
            for state in State::ALL.into_iter().filter(shown) {
                let of_state = sum(&pprof, |pprof, one| pprof.label(one, "state") == state.name());
                prop_assert_eq!(of_state, weight(state));
            }
            let is = |name: &'static str| move |pprof: &Pprof, one: &crate::proto::Sample| {
                let locations = pprof.locations(one);
                locations.len() == 1 && pprof.lines(locations[0]) == [format!("{name} :0")]
            };
            prop_assert_eq!(sum(&pprof, is("[other]")), found.folded_ns);
            prop_assert_eq!(found.folded_ns > 0, found.n_folded > 0);
            let idle = pprof.0.sample.iter().filter(|one| pprof.label(one, "state") == State::Idle.name());
            prop_assert!(idle.count() <= 1);
            // One pool: each state may have one for what is folded.
            prop_assert!(pprof.0.sample.len() <= n_samples + State::ALL.len());
            let labels = pprof.0.sample.iter().flat_map(|one| &one.label);
            for label in labels {
                prop_assert!(["state", "pool"].contains(&pprof.text(label.key)));
            }
            let whole = Pprof::decode(&profiles.of(0, WIDE).unwrap().to_pprof());
            for state in State::ALL {
                let of_state = |pprof: &Pprof, one: &crate::proto::Sample| pprof.label(one, "state") == state.name();
                let folded = sum(&whole, |pprof, one| is("[other]")(pprof, one) && of_state(pprof, one));
                prop_assert!(folded <= weight(state) / 200);
            }
            prop_assert!(profiles.of(1, WIDE).is_none());
        }
    }
}

/// Check what a profile has for stores that know OpenTelemetry's eBPF profiler: its two types, and addresses of functions without names in a
/// mapping with a build-id.
#[test]
fn as_of_ebpf_profiler() {
    let mut maker = Maker::new();
    let thread = maker.thread(101, "worker");
    maker.tables.modules[1].build_id = BuildId::new(&[1]);
    // 100 Hz: a sample stands for 10 ms.
    maker.on_cpu(thread, &["main", "?5000"], 17 * MS);
    maker.on_cpu(thread, &["main"], 18 * MS);
    let stack = maker.stack(&["main"], StackEnd::Root);
    maker.span(thread, ThreadState::Runnable, None, Some(stack), 40 * MS);
    let request = otlp_request(&[pushed(&Exports::of(&maker, None), "osd.1")]);
    let request = ExportProfilesServiceRequest::decode(&*request).unwrap();
    let tables = request.dictionary.unwrap();
    let text = |at: i32| tables.string_table[at as usize].as_str();
    let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
    let sums = profiles.iter().map(|profile| {
        let kind = profile.sample_type.unwrap();
        let values = profile.samples.iter().map(|sample| sample.values[0] as u64);
        (
            text(kind.type_strindex),
            text(kind.unit_strindex),
            values.sum(),
        )
    });
    let sums: Vec<(&str, &str, u64)> = sums.collect();
    let expected = [
        ("cpu", "nanoseconds", 35 * MS),
        ("wall", "nanoseconds", 75 * MS),
        ("samples", "count", 3),
        ("off_cpu", "nanoseconds", 40 * MS),
    ];
    assert_eq!(sums, expected);
    let unnamed = tables
        .location_table
        .iter()
        .filter(|location| location.address != 0);
    let unnamed: Vec<&otlp::Location> = unnamed.collect();
    assert_eq!(unnamed.len(), 1);
    let mapping = &tables.mapping_table[unnamed[0].mapping_index as usize];
    assert!(text(mapping.filename_strindex).contains("libc.so.6"));
    assert_eq!(unnamed[0].address, 0x5000);
    assert!((mapping.memory_start..mapping.memory_limit).contains(&0x5000));
    let build_id = &tables.attribute_table[mapping.attribute_indices[0] as usize];
    assert_eq!(
        text(build_id.key_strindex),
        "process.executable.build_id.gnu"
    );
}

/// Check that stacks with half a percent of a state's time are `[other]`, in the state that has them and no other.
#[test]
fn rare_stacks() {
    let mut maker = Maker::new();
    let thread = maker.thread(101, "worker");
    for n in 0..100 {
        let name = format!("f{n:03}");
        // One of 99 ms, and 99 of a thirtieth of one.
        let ns = if n == 0 { 99 * MS } else { MS / 30 };
        maker.on_cpu(thread, &[&name], ns);
        let stack = maker.stack(&[&name], StackEnd::Root);
        maker.span(thread, ThreadState::Runnable, None, Some(stack), MS);
    }
    let exports = Exports::of(&maker, None);
    let found = StoreProfiles::new(&exports.profile, false)
        .of(0, WIDE)
        .unwrap();
    let pprof = Pprof::decode(&found.to_pprof());
    let n_stacks = |state: &str| {
        let of_state = pprof
            .0
            .sample
            .iter()
            .filter(|one| pprof.label(one, "state") == state);
        of_state.count()
    };
    // 102.3 ms on a CPU: 15 stacks of 0.033 ms fit into 0.512 ms; of 100 ms in the queue none of 1 ms.
    assert_eq!(n_stacks("on-cpu"), 100 - 15 + 1);
    assert_eq!(n_stacks("runnable"), 100);
    assert_eq!((found.n_folded, found.folded_ns), (15, 15 * (MS / 30)));
}

/// Check that the limits of a store hold for one stack that is larger than they are, and for more pools than samples.
#[test]
fn within_limits() {
    let profile_of = |maker: &Maker, limits| {
        let exports = Exports::of(maker, None);
        StoreProfiles::new(&exports.profile, false).of(0, limits)
    };
    let mut large = Maker::new();
    let names: Vec<String> = (0..1500)
        .map(|n| format!("{n:04}{}", "x".repeat(4092)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let thread = large.thread(101, "worker");
    large.on_cpu(thread, &names, MS);
    let found = profile_of(&large, WIDE).unwrap();
    assert!(found.len_bytes() <= WIDE.n_bytes);
    assert_eq!((found.n_folded, found.folded_ns), (1, MS));

    let mut many = Maker::new();
    for n in 0..2000 {
        let letters = [n / 100, n / 10 % 10, n % 10].map(|digit| char::from(b'a' + digit as u8));
        let thread = many.thread(101 + n, &String::from_iter(letters));
        many.on_cpu(thread, &["main"], MS);
    }
    let limits = StoreLimits {
        n_samples: 10,
        ..WIDE
    };
    let found = profile_of(&many, limits).unwrap();
    assert_eq!((found.n_folded, found.folded_ns), (1990, 1990 * MS));
    assert_eq!(found.n_samples(), 10 + 900 + 1);
}

/// A profile with a name.
fn pushed(exports: &Exports, name: &str) -> PushedProfile {
    PushedProfile {
        labels: vec![("service_name".into(), name.into())],
        profile: StoreProfiles::new(&exports.profile, false)
            .of(0, WIDE)
            .unwrap(),
        id: name.into(),
    }
}

/// Two stacks of a pool, one through a function that is inlined.
fn example() -> Exports {
    let mut maker = Maker::new();
    let thread = maker.thread(101, "worker");
    for (at, frames) in [&["main", "a+b @ a.cc:1"][..], &["main", "b"]]
        .iter()
        .enumerate()
    {
        let stack = maker.stack(frames, StackEnd::Root);
        let start = at as u64 * MS;
        maker.spans.push(Span {
            thread,
            start: TimeNs(start),
            end: TimeNs(start + MS),
            weight: MS,
            n_samples: 1,
            state: ThreadState::OnCpu,
            wait: None,
            stack: Some(stack),
        });
    }
    Exports::of(&maker, None)
}

/// The fields of a message, all of which have a length or are numbers below 128: number and content.
fn fields(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let [tag, rest @ ..] = bytes {
        let (len, rest) = match tag & 7 {
            0 => (0, &rest[1..]),
            2 => {
                let n = rest.iter().take_while(|byte| **byte >= 128).count();
                let digits = rest[..=n].iter().rev();
                let len = digits.fold(0, |sum, byte| sum << 7 | usize::from(byte & 127));
                (len, &rest[n + 1..])
            }
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, &rest[..len]));
        bytes = &rest[len..];
    }
    all
}

/// Check the numbers of the fields, as the stores' APIs document them.
#[test]
fn requests() {
    let exports = example();
    let profiles = ["osd.1", "osd.2"].map(|name| pushed(&exports, name));
    let pprof = profiles[0].profile.to_pprof();
    let request = pyroscope_request(&profiles);
    let series = fields(&request);
    assert_eq!(series.len(), 2);
    let (1, series) = series[0] else { panic!() };
    let [(1, name), (1, label), (2, sample)] = fields(series)[..] else {
        panic!()
    };
    assert_eq!(fields(name), [(1, &b"__name__"[..]), (2, b"process_cpu")]);
    assert_eq!(fields(label), [(1, &b"service_name"[..]), (2, b"osd.1")]);
    assert_eq!(fields(sample), [(1, &*pprof), (2, b"osd.1")]);

    let request: serde_json::Value =
        serde_json::from_slice(&parca_request(&profiles[..1])).unwrap();
    assert_eq!(request["normalized"], true);
    let series = &request["series"][0];
    let labels = serde_json::json!([
        {"name": "__name__", "value": "process_cpu"}, {"name": "service_name", "value": "osd.1"}
    ]);
    assert_eq!(series["labels"]["labels"], labels);
    let packed = series["samples"][0]["rawProfile"].as_str().unwrap();
    let mut unpacked = Vec::new();
    let packed = BASE64_STANDARD.decode(packed).unwrap();
    GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, pprof);
}

/// Check that the parts of a process have its time, each with its pool and state.
#[test]
fn parts() {
    let mut maker = Maker::new();
    let threads = [maker.thread(101, "one"), maker.thread(102, "two")];
    for thread in threads {
        maker.on_cpu(thread, &["main", "work"], MS);
        maker.on_cpu(thread, &["main", "more"], MS);
    }
    let exports = Exports::of(&maker, None);
    let profiles = StoreProfiles::new(&exports.profile, false);
    let parts = profiles.split(0, WIDE);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for ((labels, part), pool) in parts.iter().zip(["one", "two"]) {
        assert_eq!(*labels, [pair("pool", pool), pair("state", "on-cpu")]);
        let pprof = Pprof::decode(&part.to_pprof());
        assert_eq!(pprof.0.sample.len(), 2);
        assert_eq!(sum(&pprof, |_, _| true), 2 * MS);
    }
    assert_eq!(parts.len(), 2);
}

/// Check that OpenTelemetry's types read the samples back, and that tables begin with an empty entry and share the
/// others.
#[test]
fn otlp() {
    let exports = example();
    let profiles = ["osd.1", "osd.2"].map(|name| pushed(&exports, name));
    let request = otlp_request(&profiles);
    let request = ExportProfilesServiceRequest::decode(&*request).unwrap();
    let tables = request.dictionary.unwrap();
    let text = |at: i32| tables.string_table[at as usize].as_str();
    assert_eq!(tables.mapping_table[0], otlp::Mapping::default());
    assert_eq!(tables.location_table[0], otlp::Location::default());
    assert_eq!(tables.function_table[0], otlp::Function::default());
    assert_eq!(tables.link_table, [otlp::Link::default()]);
    assert_eq!(tables.attribute_table[0], otlp::KeyValueAndUnit::default());
    assert_eq!(tables.stack_table[0], otlp::Stack::default());
    // The same for both processes.
    assert_eq!(tables.stack_table.len(), 3);
    let attribute = |at: &i32| {
        let attribute = &tables.attribute_table[*at as usize];
        let value = attribute.value.clone().unwrap().value.unwrap();
        let Value::StringValue(value) = value else {
            panic!()
        };
        format!("{}={value}", text(attribute.key_strindex))
    };
    for (resource, name) in request.resource_profiles.iter().zip(["osd.1", "osd.2"]) {
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        let keys: Vec<&str> = attributes.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(
            keys,
            ["service.name", "process.executable.name", "process.pid"]
        );
        assert!(format!("{:?}", attributes[0].value).contains(name));
        let profiles = &resource.scope_profiles[0].profiles;
        let kinds = profiles.iter().map(|profile| {
            let kind = profile.sample_type.unwrap();
            (text(kind.type_strindex), text(kind.unit_strindex))
        });
        let kinds: Vec<_> = kinds.collect();
        // All of it is on a CPU, for less than a period.
        assert_eq!(kinds, [("cpu", "nanoseconds"), ("wall", "nanoseconds")]);
        assert_eq!(profiles[0].samples, profiles[1].samples);
        let profile = &profiles[1];
        let samples = profile.samples.iter().map(|sample| {
            let stack = &tables.stack_table[sample.stack_index as usize];
            let locations = stack.location_indices.iter();
            let names = locations.flat_map(|at| {
                let location = &tables.location_table[*at as usize];
                assert_eq!(
                    attribute(&location.attribute_indices[0]),
                    "profile.frame.type=native"
                );
                location.lines.iter().map(|line| {
                    let function = &tables.function_table[line.function_index as usize];
                    text(function.name_strindex)
                })
            });
            let names: Vec<&str> = names.collect();
            let attributes: Vec<String> = sample.attribute_indices.iter().map(attribute).collect();
            assert_eq!(
                attributes,
                ["state=on-cpu", "pool=worker", "thread.name=worker"]
            );
            (names.join("<"), sample.values[0] as u64)
        });
        let mut samples: Vec<(String, u64)> = samples.collect();
        samples.sort();
        assert_eq!(
            samples,
            [("a<b<main".to_owned(), MS), ("b<main".to_owned(), MS)]
        );
    }
}
