//! speedscope's own JSON (<https://www.speedscope.app/file-format-schema.json>): one `sampled`
//! profile a group of the view (a thread by default), most time first, in nanoseconds of
//! wall-clock time.
//!
//! The samples of a thread follow each other by their weights, so that the time-order view shows the
//! thread's own time line. Time that the view hides (idle, by default) is an empty stack: it leaves
//! a gap instead of shifting what follows. The threads of a larger group come one after another.
//!
//! A frame is a function: speedscope draws frames of several lines as several boxes. Its line is the
//! first of those in the profile.

use std::borrow::Cow;
use std::io::{self, Write};

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::{Value, json};
use wcprof_profile::View;
use wcprof_profile::model::Profile;
use wcprof_text::terminal_name;

use crate::stacks::{Frame, Image, Stacks, nothing_shown};
use crate::timeline::Timeline;

#[derive(Serialize)]
struct File<'a> {
    #[serde(flatten)]
    about: Value,
    profiles: Vec<Sampled<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sampled<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames by number, root first.
    samples: Vec<&'a [usize]>,
    weights: Vec<u64>,
}

/// A frame of the file.
#[derive(PartialEq, Eq, Hash)]
struct Function<'s> {
    name: Cow<'s, str>,
    image: Option<Image<'s>>,
    /// Its source file, else its module; empty for none.
    file: Cow<'s, str>,
}

/// Functions by number, each with the first of its lines (0 without one).
#[derive(Default)]
struct Functions<'s>(IndexMap<Function<'s>, u32>);

impl<'s> Functions<'s> {
    /// The number of a frame's function.
    fn number(&mut self, stacks: &'s Stacks<'_>, frame: Frame) -> usize {
        let image = stacks.image(frame);
        let module = || image.map(|image| (stacks.image_text(image).name, 0));
        let (file, line) = stacks.source(frame).or_else(module).unwrap_or_default();
        let entry = self.0.entry(Function {
            name: stacks.text(frame),
            image,
            file,
        });
        let at = entry.index();
        let first = entry.or_insert(line);
        *first = match (*first, line) {
            (0, line) | (line, 0) => line,
            (first, line) => first.min(line),
        };
        at
    }

    fn into_json(self) -> Vec<Value> {
        let frame = |(function, line): (Function<'_>, u32)| {
            let mut frame = json!({"name": function.name});
            if !function.file.is_empty() {
                frame["file"] = function.file.into();
            }
            if line > 0 {
                frame["line"] = line.into();
            }
            frame
        };
        self.0.into_iter().map(frame).collect()
    }
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
    let mut functions = Functions::default();
    let by_row: Vec<Vec<usize>> = (0..profile.rows.len())
        .map(|row| {
            let row = stacks.labels(row).unwrap_or_default().into_iter();
            row.map(|frame| functions.number(&stacks, frame)).collect()
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
        return Err(nothing_shown());
    }
    let about = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": functions.into_json()},
        "name": terminal_name(title),
        "activeProfileIndex": 0,
        "exporter": concat!("wcprof ", env!("CARGO_PKG_VERSION")),
    });
    serde_json::to_writer(out, &File { about, profiles }).map_err(io::Error::from)
}

fn sampled<'a>(
    name: &'a str,
    threads: &[usize],
    by_row: &'a [Vec<usize>],
    timeline: &Timeline,
) -> Sampled<'a> {
    let (mut samples, mut weights): (Vec<&[usize]>, Vec<u64>) = (Vec::new(), Vec::new());
    for sample in threads.iter().flat_map(|&t| timeline.of_thread(t)) {
        let stack = by_row[sample.row as usize].as_slice();
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
        r#type: "sampled",
        name,
        unit: "nanoseconds",
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, w| sum.saturating_add(*w)),
        samples,
        weights,
    }
}
