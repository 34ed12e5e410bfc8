//! speedscope's own JSON (<https://www.speedscope.app/file-format-schema.json>): one `sampled`
//! profile a group of the view (a thread, unless told otherwise), most time first, in nanoseconds of
//! wall-clock time.
//!
//! The samples of a thread follow each other by their weights, so that the time-order view shows the
//! thread's own time line. Time that the view hides (idle, by default) is an empty stack: it leaves
//! a gap instead of shifting what follows. The threads of a larger group come one after another.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use wcprof_profile::model::Profile;
use wcprof_profile::{Label, View};

use crate::stacks::{Frame, Stacks};
use crate::timeline::Timeline;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    shared: Shared,
    profiles: Vec<Sampled<'a>>,
    name: &'a str,
    active_profile_index: usize,
    exporter: String,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<&'a [usize]>,
    weights: Vec<u64>,
}

/// Writes the time of the threads that `view` shows, under a title. An error of kind
/// [`io::ErrorKind::InvalidInput`] says that there is nothing to write.
pub fn speedscope(
    profile: &Profile,
    view: &View,
    timeline: &Timeline,
    title: &str,
    out: impl Write,
) -> io::Result<()> {
    let stacks = Stacks::new(profile, view);
    let mut ids: HashMap<Label, usize> = HashMap::new();
    let mut frames = Vec::new();
    let by_row: Vec<Option<Vec<usize>>> = (0..profile.rows.len())
        .map(|row| {
            let labels = stacks.labels(row)?.into_iter().map(|label| {
                *ids.entry(label).or_insert_with(|| {
                    let frame = Frame::Label(label);
                    frames.push(Named {
                        name: stacks.text(frame).into_owned(),
                        file: stacks.module(frame).to_owned(),
                    });
                    frames.len() - 1
                })
            });
            Some(labels.collect())
        })
        .collect();
    let profiles: Vec<Sampled<'_>> = stacks
        .groups()
        .iter()
        .enumerate()
        .filter(|(_, group)| group.weight > 0)
        .map(|(at, group)| sampled(stacks.group(at), &group.threads, &by_row, timeline))
        .collect();
    if profiles.is_empty() {
        return Err(nothing());
    }
    let file = File {
        schema: SCHEMA,
        shared: Shared { frames },
        profiles,
        name: title,
        active_profile_index: 0,
        exporter: format!("wcprof {}", env!("CARGO_PKG_VERSION")),
    };
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}

fn sampled<'a>(
    name: &'a str,
    threads: &[usize],
    by_row: &'a [Option<Vec<usize>>],
    timeline: &Timeline,
) -> Sampled<'a> {
    let mut samples: Vec<&[usize]> = Vec::new();
    let mut weights: Vec<u64> = Vec::new();
    for sample in threads.iter().flat_map(|&t| timeline.of_thread(t)) {
        let stack = by_row.get(sample.row as usize).and_then(Option::as_deref);
        let stack = stack.unwrap_or(&[]);
        match (samples.last(), weights.last_mut()) {
            (Some(last), Some(weight)) if *last == stack => {
                *weight = weight.saturating_add(sample.weight);
            }
            _ => {
                samples.push(stack);
                weights.push(sample.weight);
            }
        }
    }
    Sampled {
        kind: "sampled",
        name,
        unit: "nanoseconds",
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, w| sum.saturating_add(*w)),
        samples,
        weights,
    }
}

/// That nothing passes the filters.
pub(crate) fn nothing() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "nothing to export: no time passes the filters (idle time is hidden unless shown)",
    )
}
