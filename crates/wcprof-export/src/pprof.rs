//! pprof: a gzipped protocol buffer message (`profile.proto` of github.com/google/pprof).
//!
//! Two values a sample: `samples` (observations) and `wall` (ns of wall-clock time, the default).
//! Threads, pools, processes and states are labels, so that `-tagfocus state=lock` and `-tagroot
//! pool` work. Frames are functions without addresses: names are final, and viewers need no binary.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use wcprof_profile::View;
use wcprof_profile::model::Profile;

use crate::origin::{recorded_by, started_unix_ns};
use crate::protobuf::Message;
use crate::stacks::{Frame, Stacks};

/// Field numbers of `profile.proto`.
mod field {
    pub(super) mod profile {
        pub(crate) const SAMPLE_TYPE: u32 = 1;
        pub(crate) const SAMPLE: u32 = 2;
        pub(crate) const LOCATION: u32 = 4;
        pub(crate) const FUNCTION: u32 = 5;
        pub(crate) const STRING_TABLE: u32 = 6;
        pub(crate) const TIME_NANOS: u32 = 9;
        pub(crate) const DURATION_NANOS: u32 = 10;
        pub(crate) const PERIOD_TYPE: u32 = 11;
        pub(crate) const PERIOD: u32 = 12;
        pub(crate) const COMMENT: u32 = 13;
        pub(crate) const DEFAULT_SAMPLE_TYPE: u32 = 14;
    }
}

/// Interned strings; the first is empty, as the format wants.
#[derive(Debug)]
struct Strings {
    list: Vec<String>,
    ids: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Self {
        Self {
            list: vec![String::new()],
            ids: HashMap::from([(String::new(), 0)]),
        }
    }

    fn id(&mut self, text: &str) -> u64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Writes the rows that `view` shows. Groups are the root frames (none with
/// [`GroupBy::All`](wcprof_profile::GroupBy::All)), with `state_frames` the state is also the
/// innermost frame.
pub fn pprof(profile: &Profile, view: &View, out: impl Write) -> io::Result<()> {
    let mut strings = Strings::new();
    let mut message = Message::default();
    let value_type = |strings: &mut Strings, kind: &str, unit: &str| {
        let mut message = Message::default();
        message
            .number(1, strings.id(kind))
            .number(2, strings.id(unit));
        message
    };
    let samples_type = value_type(&mut strings, "samples", "count");
    let wall_type = value_type(&mut strings, "wall", "nanoseconds");
    message.message(field::profile::SAMPLE_TYPE, &samples_type);
    message.message(field::profile::SAMPLE_TYPE, &wall_type);

    let mut functions = Functions::default();
    let stacks = Stacks::new(profile, view);
    for (at, row) in profile.rows.iter().enumerate() {
        let (Some(frames), Some(thread)) = (stacks.frames(at), profile.threads.get(row.thread))
        else {
            continue;
        };
        let ids: Vec<u64> = frames.into_iter().rev().map(|f| functions.id(f)).collect();
        let mut sample = Message::default();
        sample.packed(1, ids).packed(2, [row.n_samples, row.weight]);
        let pool = profile.pools.get(thread.pool).map_or("", |p| &p.name);
        let cgroup = profile.process_of(thread).map_or("", |p| &p.cgroup);
        for (key, value) in [
            ("state", row.state.name()),
            ("thread", &thread.comm),
            ("pool", pool),
            ("process", &thread.process_comm),
            ("cgroup", cgroup),
        ] {
            if value.is_empty() {
                continue;
            }
            let mut label = Message::default();
            label
                .number(1, strings.id(key))
                .number(2, strings.id(value));
            sample.message(3, &label);
        }
        for (key, n) in [("tid", thread.tid.0), ("pid", thread.pid.0)] {
            let mut label = Message::default();
            label
                .number(1, strings.id(key))
                .number(3, i64::from(n) as u64);
            sample.message(3, &label);
        }
        message.message(field::profile::SAMPLE, &sample);
    }
    for (at, frame) in functions.list.iter().enumerate() {
        let id = at as u64 + 1;
        let module = stacks.module(*frame);
        let name = strings.id(&stacks.text(*frame));
        let mut line = Message::default();
        line.number(1, id);
        let mut location = Message::default();
        location.number(1, id).message(4, &line);
        let mut function = Message::default();
        function
            .number(1, id)
            .number(2, name)
            .number(3, name)
            .number(4, strings.id(module));
        message.message(field::profile::LOCATION, &location);
        message.message(field::profile::FUNCTION, &function);
    }
    let period = match profile.header.rate_hz {
        0 => 0,
        hz => 1_000_000_000 / u64::from(hz),
    };
    message
        .number(field::profile::TIME_NANOS, started_unix_ns(profile))
        .number(field::profile::DURATION_NANOS, profile.duration_ns())
        .message(field::profile::PERIOD_TYPE, &wall_type)
        .number(field::profile::PERIOD, period)
        .number(field::profile::DEFAULT_SAMPLE_TYPE, strings.id("wall"));
    let recorded = recorded_by(profile);
    let notes = profile.header.notes.iter().map(String::as_str);
    let comments: Vec<u64> = std::iter::once(recorded.as_str())
        .chain(notes)
        .map(|text| strings.id(text))
        .collect();
    message.packed(field::profile::COMMENT, comments);
    for text in &strings.list {
        message.string(field::profile::STRING_TABLE, text);
    }
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(message.as_bytes())?;
    gzip.finish()?.flush()
}

/// Ids of frames, each a function and a location of its own.
#[derive(Debug, Default)]
struct Functions {
    list: Vec<Frame>,
    ids: HashMap<Frame, u64>,
}

impl Functions {
    fn id(&mut self, frame: Frame) -> u64 {
        *self.ids.entry(frame).or_insert_with(|| {
            self.list.push(frame);
            self.list.len() as u64
        })
    }
}
