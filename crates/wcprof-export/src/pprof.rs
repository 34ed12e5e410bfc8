//! pprof: a gzipped protocol buffer message (`profile.proto` of github.com/google/pprof).
//!
//! Two values a sample: `samples` (observations) and `wall` (ns of wall-clock time, the default).
//! Threads, pools, processes and states are labels, so that `-tagfocus state=lock` and `-tagroot
//! pool` work. Frames are functions without addresses: names are final, and viewers need no binary.

use std::io::{self, Write};
use std::iter;

use flate2::Compression;
use flate2::write::GzEncoder;
use indexmap::IndexSet;
use wcprof_profile::View;
use wcprof_profile::model::{Profile, ProfileThread, Row};

use crate::origin::{recorded_by, started_unix_ns};
use crate::protobuf::Message;
use crate::stacks::{Frame, Stacks, number};

// Field numbers of the message `Profile`.
const SAMPLE_TYPE: u32 = 1;
const SAMPLE: u32 = 2;
const LOCATION: u32 = 4;
const FUNCTION: u32 = 5;
const STRING_TABLE: u32 = 6;
const TIME_NANOS: u32 = 9;
const DURATION_NANOS: u32 = 10;
const PERIOD_TYPE: u32 = 11;
const PERIOD: u32 = 12;
const COMMENT: u32 = 13;
const DEFAULT_SAMPLE_TYPE: u32 = 14;

fn id(strings: &mut IndexSet<String>, text: &str) -> u64 {
    number(strings, text) as u64
}

/// Writes the rows that `view` shows. Groups are the root frames (none with
/// [`GroupBy::All`](wcprof_profile::GroupBy::All)), with `state_frames` the state is also the
/// innermost frame.
pub fn pprof(profile: &Profile, view: &View, out: impl Write) -> io::Result<()> {
    // By number; the first is empty, as the format wants.
    let mut strings = IndexSet::from([String::new()]);
    let mut message = Message::default();
    let mut value_type = |kind, unit| {
        let (kind, unit) = (id(&mut strings, kind), id(&mut strings, unit));
        Message::of_numbers(&[(1, kind), (2, unit)])
    };
    let samples = value_type("samples", "count");
    let wall = value_type("wall", "nanoseconds");
    message.message(SAMPLE_TYPE, &samples);
    message.message(SAMPLE_TYPE, &wall);

    let stacks = Stacks::new(profile, view);
    // Ids are from 1: 0 is none.
    let mut functions = IndexSet::new();
    for (at, row) in profile.rows.iter().enumerate() {
        let Some(frames) = stacks.frames(at) else {
            continue;
        };
        let leaf_first = frames.into_iter().rev();
        let ids: Vec<u64> = leaf_first
            .map(|frame| functions.insert_full(frame).0 as u64 + 1)
            .collect();
        let mut sample = Message::default();
        sample.packed(1, ids).packed(2, [row.n_samples, row.weight]);
        add_labels(&mut sample, profile, row, &mut strings);
        message.message(SAMPLE, &sample);
    }
    add_functions(&mut message, &functions, &stacks, &mut strings);
    let period = 1_000_000_000_u64.checked_div(profile.header.rate_hz.into());
    message
        .number(TIME_NANOS, started_unix_ns(profile))
        .number(DURATION_NANOS, profile.duration_ns())
        .message(PERIOD_TYPE, &wall)
        .number(PERIOD, period.unwrap_or(0))
        .number(DEFAULT_SAMPLE_TYPE, id(&mut strings, "wall"));
    let by = recorded_by(profile);
    let comments = iter::once(&by).chain(&profile.header.notes);
    let comments: Vec<u64> = comments.map(|text| id(&mut strings, text)).collect();
    message.packed(COMMENT, comments);
    for text in &strings {
        message.string(STRING_TABLE, text);
    }
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(message.as_bytes())?;
    gzip.finish()?.flush()
}

/// Whose sample it is, and in which state.
fn add_labels(sample: &mut Message, profile: &Profile, row: &Row, strings: &mut IndexSet<String>) {
    let thread: &ProfileThread = &profile.threads[row.thread];
    let pool = profile.pools.get(thread.pool).map_or("", |p| &p.name);
    let cgroup = profile.process_of(thread).map_or("", |p| &p.cgroup);
    for (key, value) in [
        ("state", row.state.name()),
        ("thread", &thread.comm),
        ("pool", pool),
        ("process", &thread.process_comm),
        ("cgroup", cgroup),
    ] {
        if !value.is_empty() {
            let (key, value) = (id(strings, key), id(strings, value));
            sample.message(3, &Message::of_numbers(&[(1, key), (2, value)]));
        }
    }
    for (key, n) in [("tid", thread.tid.0), ("pid", thread.pid.0)] {
        let label = [(1, id(strings, key)), (3, i64::from(n) as u64)];
        sample.message(3, &Message::of_numbers(&label));
    }
}

/// Each frame is a function with a location of its own.
fn add_functions(
    message: &mut Message,
    functions: &IndexSet<Frame>,
    stacks: &Stacks<'_>,
    strings: &mut IndexSet<String>,
) {
    for (at, &frame) in (1..).zip(functions) {
        let name = id(strings, &stacks.text(frame));
        let module = id(strings, stacks.module(frame));
        let mut location = Message::of_numbers(&[(1, at)]);
        location.message(4, &Message::of_numbers(&[(1, at)]));
        message.message(LOCATION, &location);
        let function = [(1, at), (2, name), (3, name), (4, module)];
        message.message(FUNCTION, &Message::of_numbers(&function));
    }
}
