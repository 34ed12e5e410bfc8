//! pprof: a gzipped protocol buffer message (`profile.proto` of github.com/google/pprof).
//!
//! Two values a sample: `samples` (observations) and `wall` (ns of wall-clock time, the default).
//! Threads, pools, processes and states are labels, so that `-tagfocus state=lock` and `-tagroot
//! pool` work. A location is a frame with the functions that are inlined there, each with its line;
//! its mapping is the module. There are no addresses: names are final, and viewers need no binary.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use prost::Message;
use wcprof_profile::View;
use wcprof_profile::model::{Profile, Row};

use crate::origin::{recorded, started_unix_ns};
use crate::proto;
use crate::stacks::{Frame, Image, Stacks};
use crate::strings::Strings;

/// pprof's name of the kernel.
const KERNEL: &str = "[kernel.kallsyms]";

/// Writes the rows that `view` shows. Groups are the root frames (none with
/// [`GroupBy::All`](wcprof_profile::GroupBy::All)), with `state_frames` the state is also the
/// innermost frame.
pub fn pprof(profile: &Profile, view: &View, out: impl Write) -> io::Result<()> {
    let mut builder = Builder {
        profile,
        stacks: Stacks::new(profile, view),
        strings: Strings::default(),
        locations: IndexSet::new(),
        functions: IndexSet::new(),
    };
    let message = builder.message();
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?.flush()
}

/// The tables; an entry's place is its id less 1.
struct Builder<'p> {
    profile: &'p Profile,
    stacks: Stacks<'p>,
    strings: Strings,
    /// Each root first: what is inlined follows what it is inlined into.
    locations: IndexSet<Vec<Frame>>,
    /// Name and source file.
    functions: IndexSet<(i64, i64)>,
}

impl Builder<'_> {
    fn message(&mut self) -> proto::Profile {
        // As the format wants.
        self.text("");
        let samples = self.value_type("samples", "count");
        let wall = self.value_type("wall", "nanoseconds");
        let rows = self.profile.rows.iter().enumerate();
        let sample = rows.filter_map(|(at, row)| self.sample(at, row)).collect();
        let (mapping, location) = self.mappings_and_locations();
        let period = 1_000_000_000_u64.checked_div(self.profile.header.rate_hz.into());
        let comments = recorded(self.profile);
        proto::Profile {
            sample_type: vec![samples, wall],
            sample,
            mapping,
            location,
            function: self.functions(),
            time_nanos: number(started_unix_ns(self.profile)),
            duration_nanos: number(self.profile.duration_ns()),
            period_type: Some(wall),
            period: number(period.unwrap_or(0)),
            comment: comments.iter().map(|text| self.text(text)).collect(),
            default_sample_type: self.text("wall"),
            string_table: std::mem::take(&mut self.strings).into_list(),
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        self.strings.number(text) as i64
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.text(kind),
            unit: self.text(unit),
        }
    }

    /// `None` for a row that is not shown.
    fn sample(&mut self, at: usize, row: &Row) -> Option<proto::Sample> {
        let frames = self.stacks.frames(at)?;
        let depths = self.stacks.inline_depths(&frames);
        let mut location_id: Vec<u64> = frames
            .iter()
            .zip(depths)
            .collect::<Vec<_>>()
            .chunk_by(|_, (_, depth)| *depth > 0)
            .map(|location| location.iter().map(|(frame, _)| **frame).collect())
            .map(|location| id(self.locations.insert_full(location).0))
            .collect();
        location_id.reverse();
        Some(proto::Sample {
            location_id,
            value: vec![number(row.n_samples), number(row.weight)],
            label: self.labels(row),
        })
    }

    /// Whose sample it is, and in which state.
    fn labels(&mut self, row: &Row) -> Vec<proto::Label> {
        let thread = &self.profile.threads[row.thread];
        let text = self.stacks.thread_text(thread);
        let texts = [
            ("state", row.state.name()),
            ("thread", &text.name),
            ("pool", &text.pool),
            ("process", &text.process),
            ("cgroup", &text.cgroup),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        let mut labels: Vec<proto::Label> = texts
            .map(|(key, text)| proto::Label {
                key: self.text(key),
                str: self.text(text),
                num: 0,
            })
            .collect();
        labels.extend(
            [("tid", thread.tid.0), ("pid", thread.pid.0)].map(|(key, num)| proto::Label {
                key: self.text(key),
                str: 0,
                num: num.into(),
            }),
        );
        labels
    }

    fn mappings_and_locations(&mut self) -> (Vec<proto::Mapping>, Vec<proto::Location>) {
        let locations = std::mem::take(&mut self.locations);
        let mut images: IndexSet<Image<'_>> = IndexSet::new();
        images.extend(locations.iter().filter_map(|l| self.stacks.image(l[0])));
        images.sort_by_cached_key(|image| is_library(&self.stacks.image_text(*image).name));
        let mut mappings: Vec<proto::Mapping> = (1..)
            .zip(&images)
            .map(|(id, image)| self.mapping(id, *image))
            .collect();
        let mut made = Vec::with_capacity(locations.len());
        for (at, frames) in locations.iter().enumerate() {
            let image = self.stacks.image(frames[0]);
            let mapping = image.and_then(|image| images.get_index_of(&image));
            let line: Vec<proto::Line> = frames.iter().rev().map(|f| self.line(*f)).collect();
            if let Some(mapping) = mapping.map(|at| &mut mappings[at]) {
                let has_file = frames.iter().any(|f| self.stacks.source(*f).is_some());
                mapping.has_filenames |= has_file;
                mapping.has_line_numbers |= line.iter().any(|line| line.line > 0);
                mapping.has_inline_frames |= line.len() > 1;
            }
            made.push(proto::Location {
                id: id(at),
                mapping_id: mapping.map_or(0, id),
                line,
            });
        }
        (mappings, made)
    }

    fn mapping(&mut self, id: u64, image: Image<'_>) -> proto::Mapping {
        let text = self.stacks.image_text(image);
        let path = match &*text.name {
            "[kernel]" => KERNEL,
            _ => &text.path,
        };
        proto::Mapping {
            id,
            filename: self.strings.number(path) as i64,
            build_id: self.strings.number(&text.build_id) as i64,
            has_functions: true,
            ..proto::Mapping::default()
        }
    }

    fn line(&mut self, frame: Frame) -> proto::Line {
        let name = self.strings.number(&self.stacks.text(frame)) as i64;
        let (file, line) = self.stacks.source(frame).unwrap_or_default();
        let file = self.text(&file);
        proto::Line {
            function_id: id(self.functions.insert_full((name, file)).0),
            line: line.into(),
        }
    }

    fn functions(&self) -> Vec<proto::Function> {
        let function = |(at, &(name, filename))| proto::Function {
            id: id(at),
            name,
            system_name: name,
            filename,
        };
        self.functions.iter().enumerate().map(function).collect()
    }
}

/// Viewers call the first mapping that is none the program.
fn is_library(name: &str) -> bool {
    name.contains(".so") || name.starts_with('[')
}

fn id(at: usize) -> u64 {
    at as u64 + 1
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
