//! pprof: a gzipped protocol buffer message (`profile.proto` of github.com/google/pprof).
//!
//! Two values a sample: `samples` (observations) and `wall` (ns of wall-clock time, the default).
//! Threads, pools, processes and states are labels, so that `-tagfocus state=lock` and `-tagroot
//! pool` work. A location is a frame with the functions that are inlined there, each with its line;
//! its mapping is the module. There are no addresses: names are final, and viewers need no binary.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use wcprof_profile::View;
use wcprof_profile::model::{Profile, Row};

use super::proto;
use super::tables::{Tables, number};
use crate::origin::recorded;
use crate::stacks::Stacks;

/// Writes the rows that `view` shows. Groups are the root frames (none with
/// [`GroupBy::All`](wcprof_profile::GroupBy::All)), with `state_frames` the state is also the
/// innermost frame.
pub fn pprof(profile: &Profile, view: &View, out: impl Write) -> io::Result<()> {
    let stacks = Stacks::new(profile, view);
    let mut tables = Tables::new(&stacks);
    let samples = tables.value_type("samples", "count");
    let wall = tables.value_type("wall", "nanoseconds");
    let rows = profile.rows.iter().enumerate();
    let sample = rows.filter_map(|(at, row)| {
        let location_id = tables.location_ids(&stacks.frames(at)?);
        Some(proto::Sample {
            location_id,
            value: vec![number(row.n_samples), number(row.weight)],
            label: labels(profile, &stacks, row, &mut tables),
        })
    });
    let sample = sample.collect();
    let comments = recorded(profile);
    let comment = comments.iter().map(|text| tables.text(text)).collect();
    let default_sample_type = tables.text("wall");
    let message = proto::Profile {
        sample_type: vec![samples, wall],
        sample,
        comment,
        default_sample_type,
        ..tables.into_message(profile, wall)
    };
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?.flush()
}

/// Whose sample it is, and in which state.
fn labels(
    profile: &Profile,
    stacks: &Stacks<'_>,
    row: &Row,
    tables: &mut Tables<'_>,
) -> Vec<proto::Label> {
    let thread = &profile.threads[row.thread];
    let text = stacks.thread_text(thread);
    let texts = [
        ("state", row.state.name()),
        ("thread", &text.name),
        ("pool", &text.pool),
        ("process", &text.process),
        ("cgroup", &text.cgroup),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let mut labels: Vec<proto::Label> = texts.map(|(key, text)| tables.label(key, text)).collect();
    labels.extend(
        [("tid", thread.tid.0), ("pid", thread.pid.0)].map(|(key, num)| proto::Label {
            key: tables.text(key),
            str: 0,
            num: num.into(),
        }),
    );
    labels
}
