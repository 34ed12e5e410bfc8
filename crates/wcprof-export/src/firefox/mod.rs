//! The Firefox Profiler's processed profile: a JSON document for profiler.firefox.com, version 61 of the format
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>).
//! The viewer upgrades old versions when it loads them.
//!
//! A thread is a track. States are categories (colors of the track) of samples and their frames.
//! Weights are milliseconds of wall-clock time; the time of a sample is its start. Stretches of
//! 1 ms and more in one state other than idle are markers.
//!
//! The crate `fxprof-processed-profile` (0.8.1) is not used: its weights are whole numbers, and most of ours are below
//! 1 ms. Its frames have no file, line or inline depth, and only those with an address have a module.

mod markers;
mod shown;
mod tables;

use std::cmp::Reverse;
use std::io::{self, Write};
use std::iter;

use serde::Serialize;
use serde_json::{Value, json};
use wcprof_profile::View;
use wcprof_profile::model::{Profile, ProfileThread, State};
use wcprof_text::terminal_name;

use crate::origin::recorded;
use crate::stacks::{Stacks, nothing_shown};
use crate::timeline::{Sample, Timeline};
use markers::{MARKER, MAX_MARKERS, Markers, markers};
use shown::{MAX_GAP_NS, Shown, category, color, ms};
use tables::Tables;

/// Threads whose tracks are open at first.
const N_VISIBLE: usize = 16;
#[derive(Serialize)]
struct Document {
    meta: Value,
    libs: Vec<Value>,
    shared: Value,
    threads: Vec<Thread>,
}

#[derive(Serialize)]
struct Thread {
    #[serde(flatten)]
    about: Value,
    samples: Samples,
    markers: Markers,
}

/// A column a field. Times and weights in ms, CPU time in ns.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    stack: Vec<Option<usize>>,
    time: Vec<f64>,
    weight: Vec<f64>,
    weight_type: &'static str,
    /// CPU time since the sample before.
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Vec<u64>,
    length: usize,
}

impl Samples {
    /// Times in ns.
    fn push(&mut self, stack: Option<usize>, time: u64, weight: u64, cpu: u64) {
        self.stack.push(stack);
        self.time.push(ms(time));
        self.weight.push(ms(weight));
        self.thread_cpu_delta.push(cpu);
        self.length += 1;
    }
}

/// Writes the time of the threads that `view` shows, under a title. An error of kind
/// [`io::ErrorKind::InvalidInput`] says that there is nothing to write.
pub fn firefox(
    profile: &Profile,
    view: &View,
    timeline: &Timeline,
    title: &str,
    out: impl Write,
) -> io::Result<()> {
    let mut builder = Builder {
        shown: Shown {
            profile,
            stacks: Stacks::new(profile, view),
        },
        tables: Tables::default(),
        stack_of_row: vec![None; profile.rows.len()],
        n_unmarked: 0,
    };
    let mut threads: Vec<(u64, usize)> = (0..profile.threads.len())
        .map(|at| (builder.shown.shown_ns(timeline.of_thread(at)), at))
        .filter(|(weight, _)| *weight > 0)
        .collect();
    if threads.is_empty() {
        return Err(nothing_shown());
    }
    // The busiest threads are the ones shown at first.
    threads.sort_by_key(|&(weight, at)| (Reverse(weight), at));
    let threads: Vec<Thread> = threads
        .into_iter()
        .map(|(_, at)| builder.thread(&profile.threads[at], timeline.of_thread(at)))
        .collect();
    let meta = meta(profile, title, threads.len(), builder.n_unmarked);
    let (libs, shared) = builder.tables.into_json(&builder.shown.stacks);
    let document = Document {
        meta,
        libs,
        shared,
        threads,
    };
    serde_json::to_writer(out, &document).map_err(io::Error::from)
}

fn meta(profile: &Profile, title: &str, n_threads: usize, n_unmarked: usize) -> Value {
    let rate = match profile.header.rate_hz {
        0 => 100,
        hz => hz,
    };
    let category = |name, color| json!({"name": name, "color": color, "subcategories": ["Other"]});
    let mut categories = vec![category("other", "grey")];
    categories.extend(State::ALL.map(|state| category(state.name(), color(state))));
    let entry = |label, value| json!({"label": label, "format": "string", "value": value});
    let names = iter::once("Recorded by").chain(iter::repeat("Note"));
    let texts = names.zip(recorded(profile));
    let mut entries: Vec<Value> = texts.map(|(name, text)| entry(name, text)).collect();
    if n_unmarked > 0 {
        let n = format!("{n_unmarked} (short ones, of threads with more than {MAX_MARKERS})");
        entries.push(entry("Stretches without a marker", n));
    }
    let mut meta = json!({
        "interval": 1000.0 / f64::from(rate),
        "startTime": ms(profile.began_unix_ns()),
        "processType": 0,
        "product": terminal_name(title),
        "importedFrom": "wcprof",
        "oscpu": "Linux",
        "stackwalk": 1,
        // Of the format that browsers write; the viewer wants one and does not use it here.
        "version": 24,
        "preprocessedProfileVersion": 61,
        "symbolicated": true,
        "categories": categories,
        "markerSchema": [{
            "name": MARKER,
            "chartLabel": "{marker.data.function}",
            "tableLabel": "{marker.name} in {marker.data.function}",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "fields": [{"key": "function", "label": "Mostly in", "format": "unique-string"}],
            "description": "The thread was in one state all the time.",
        }],
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "extra": [{"label": "Recording", "entries": entries}],
        "initialVisibleThreads": (0..n_threads.min(N_VISIBLE)).collect::<Vec<_>>(),
        "initialSelectedThreads": [0],
        "keepProfileThreadOrder": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
    });
    if profile.header.n_cpus > 0 {
        meta["logicalCPUs"] = profile.header.n_cpus.into();
    }
    meta
}

/// What threads share.
struct Builder<'p> {
    shown: Shown<'p>,
    tables: Tables<'p>,
    /// By row, once it is known.
    stack_of_row: Vec<Option<usize>>,
    /// Stretches without a marker because there are too many.
    n_unmarked: usize,
}

impl<'p> Builder<'p> {
    fn thread(&mut self, thread: &'p ProfileThread, all: &[Sample]) -> Thread {
        let mut samples = Samples {
            weight_type: "tracing-ms",
            ..Samples::default()
        };
        // The viewer takes CPU time for that before a sample.
        let (mut cpu, mut end) = (0, None::<u64>);
        for sample in all {
            if !self.shown.shows(sample) {
                continue;
            }
            if let Some(end) = end.take_if(|end| end.saturating_add(MAX_GAP_NS) < sample.start) {
                samples.push(None, end, 0, cpu);
                cpu = 0;
            }
            let stack = self.stack(sample);
            samples.push(stack, sample.start, sample.weight, cpu);
            cpu = match self.shown.state(sample).is_running() {
                true => sample.weight,
                false => 0,
            };
            end = Some(sample.end());
        }
        if let Some(end) = end {
            samples.push(None, end, 0, cpu);
        }
        let text = self.shown.stacks.thread_text(thread);
        let about = json!({
            "processType": "default",
            "processStartupTime": 0.0,
            "processShutdownTime": null,
            "registerTime": ms(all.first().map_or(0, |s| s.start)),
            "unregisterTime": all.last().map(|s| ms(s.end())),
            "pausedRanges": [],
            "showMarkersInTimeline": true,
            "name": text.name,
            "isMainThread": thread.pid.0 == thread.tid.0,
            "processName": text.process,
            "pid": thread.pid.to_string(),
            "tid": thread.tid.0,
        });
        let (markers, n_unmarked) = markers(&self.shown, &mut self.tables.strings, all);
        self.n_unmarked += n_unmarked;
        Thread {
            about,
            samples,
            markers,
        }
    }

    /// The stack of a sample that is shown.
    fn stack(&mut self, sample: &Sample) -> Option<usize> {
        let row = sample.row as usize;
        if self.stack_of_row[row].is_none() {
            let frames = self.shown.stacks.frames(row)?;
            let category = category(self.shown.state(sample));
            self.stack_of_row[row] = self.tables.stack(&self.shown.stacks, &frames, category);
        }
        self.stack_of_row[row]
    }
}
