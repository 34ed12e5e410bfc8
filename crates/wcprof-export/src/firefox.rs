//! The Firefox Profiler's processed profile: a JSON document for profiler.firefox.com, version 61 of the format
//! (<https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>).
//! The viewer upgrades old versions when it loads them.
//!
//! A thread is a track. States are categories (colors of the track) of samples and their frames.
//! Weights are milliseconds of wall-clock time; the time of a sample is its start. Stretches of
//! 1 ms and more in one state other than idle are markers.
//!
//! The crate `fxprof-processed-profile` is not used: its weights are whole numbers, and most of ours are
//! below 1 ms.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use indexmap::IndexSet;
use serde::Serialize;
use serde_json::{Value, json};
use wcprof_profile::model::{Profile, ProfileThread, State};
use wcprof_profile::{Label, View};

use crate::origin::{recorded_by, started_unix_ns};
use crate::stacks::{Frame, Stacks, nothing_shown, number};
use crate::timeline::{Sample, Timeline};

/// Stretches shorter than this are not marked, ns.
const MIN_MARKER_NS: u64 = 1_000_000;
/// Samples with at most this time between them follow each other, ns.
const MAX_GAP_NS: u64 = 10_000;
/// Most markers of a thread; the longest are kept.
const MAX_MARKERS: usize = 20_000;
/// Threads whose tracks are open at first.
const N_VISIBLE: usize = 16;
/// The category that viewers fall back to.
const OTHER: usize = 0;
/// The type of our markers, by which they refer to their schema.
const MARKER: &str = "wcprof state";

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

/// A column a field.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    data: Vec<MarkerData>,
    name: Vec<usize>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    phase: Vec<u32>,
    category: Vec<usize>,
    length: usize,
}

#[derive(Serialize)]
struct MarkerData {
    r#type: &'static str,
    function: usize,
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
        profile,
        stacks: Stacks::new(profile, view),
        strings: IndexSet::new(),
        functions: IndexSet::new(),
        frames: IndexSet::new(),
        nodes: IndexSet::new(),
        stack_of_row: vec![None; profile.rows.len()],
        n_unmarked: 0,
    };
    let mut threads: Vec<(u64, usize)> = (0..profile.threads.len())
        .map(|at| (builder.shown_ns(timeline.of_thread(at)), at))
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
    let (libs, shared) = builder.tables();
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
    let mut entries = vec![entry("Recorded by", recorded_by(profile))];
    let notes = profile.header.notes.iter();
    entries.extend(notes.map(|note| entry("Note", note.clone())));
    if n_unmarked > 0 {
        let n = format!("{n_unmarked} (short ones, of threads with more than {MAX_MARKERS})");
        entries.push(entry("Stretches without a marker", n));
    }
    let mut meta = json!({
        "interval": 1000.0 / f64::from(rate),
        "startTime": ms(started_unix_ns(profile)),
        "processType": 0,
        "product": title,
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

/// The tables that threads share; an entry's place is its number.
struct Builder<'p> {
    profile: &'p Profile,
    stacks: Stacks<'p>,
    strings: IndexSet<String>,
    functions: IndexSet<Frame>,
    /// Function and category.
    frames: IndexSet<(usize, usize)>,
    /// The caller's node and the frame.
    nodes: IndexSet<(Option<usize>, usize)>,
    /// By row, once it is known.
    stack_of_row: Vec<Option<usize>>,
    /// Stretches without a marker because there are too many.
    n_unmarked: usize,
}

impl Builder<'_> {
    fn state(&self, sample: &Sample) -> State {
        self.profile.rows[sample.row as usize].state
    }

    fn shows(&self, sample: &Sample) -> bool {
        self.stacks.shows(sample.row as usize)
    }

    /// The time of a thread that is shown, ns.
    fn shown_ns(&self, samples: &[Sample]) -> u64 {
        let shown = samples.iter().filter(|s| self.shows(s));
        shown.fold(0, |sum, s| sum.saturating_add(s.weight))
    }

    fn thread(&mut self, thread: &ProfileThread, all: &[Sample]) -> Thread {
        let mut samples = Samples {
            weight_type: "tracing-ms",
            ..Samples::default()
        };
        // The viewer takes CPU time for that before a sample.
        let (mut cpu, mut end) = (0, None::<u64>);
        for sample in all {
            if !self.shows(sample) {
                continue;
            }
            if let Some(end) = end.take_if(|end| end.saturating_add(MAX_GAP_NS) < sample.start) {
                samples.push(None, end, 0, cpu);
                cpu = 0;
            }
            let stack = self.stack(sample);
            samples.push(stack, sample.start, sample.weight, cpu);
            cpu = match self.state(sample) {
                State::OnCpu | State::Guest => sample.weight,
                _ => 0,
            };
            end = Some(sample.end());
        }
        if let Some(end) = end {
            samples.push(None, end, 0, cpu);
        }
        let about = json!({
            "processType": "default",
            "processStartupTime": 0.0,
            "processShutdownTime": null,
            "registerTime": ms(all.first().map_or(0, |s| s.start)),
            "unregisterTime": all.last().map(|s| ms(s.end())),
            "pausedRanges": [],
            "showMarkersInTimeline": true,
            "name": thread.comm,
            "isMainThread": thread.pid.0 == thread.tid.0,
            "processName": thread.process_comm,
            "pid": thread.pid.to_string(),
            "tid": thread.tid.0,
        });
        Thread {
            about,
            samples,
            markers: self.markers(all),
        }
    }

    /// The stack of a sample that is shown.
    fn stack(&mut self, sample: &Sample) -> Option<usize> {
        let row = sample.row as usize;
        if self.stack_of_row[row].is_none() {
            let category = category(self.state(sample));
            let mut stack = None;
            for frame in self.stacks.frames(row)? {
                let function = self.functions.insert_full(frame).0;
                let frame = self.frames.insert_full((function, category)).0;
                stack = Some(self.nodes.insert_full((stack, frame)).0);
            }
            self.stack_of_row[row] = stack;
        }
        self.stack_of_row[row]
    }

    /// Marks stretches of one state.
    fn markers(&mut self, samples: &[Sample]) -> Markers {
        let mut stretches: Vec<&[Sample]> = samples
            .chunk_by(|a, b| {
                let is_next = a.end().saturating_add(MAX_GAP_NS) >= b.start;
                is_next && self.state(a) == self.state(b) && self.shows(a) == self.shows(b)
            })
            .filter(|stretch| {
                self.shows(&stretch[0])
                    && !matches!(
                        self.state(&stretch[0]),
                        State::Idle | State::PlaceUnknown | State::Unknown
                    )
                    && length_ns(stretch) >= MIN_MARKER_NS
            })
            .collect();
        let left_out = stretches.len().saturating_sub(MAX_MARKERS);
        if left_out > 0 {
            self.n_unmarked += left_out;
            stretches.sort_by_key(|s| Reverse(length_ns(s)));
            stretches.truncate(MAX_MARKERS);
            stretches.sort_by_key(|s| s[0].start);
        }
        let mut markers = Markers::default();
        for stretch in stretches {
            let (state, start) = (self.state(&stretch[0]), stretch[0].start);
            let function = self.most_common_leaf(stretch);
            markers.data.push(MarkerData {
                r#type: MARKER,
                function: number(&mut self.strings, &function),
            });
            markers.name.push(number(&mut self.strings, state.name()));
            markers.start_time.push(ms(start));
            markers.end_time.push(ms(start + length_ns(stretch)));
            // An interval.
            markers.phase.push(1);
            markers.category.push(category(state));
            markers.length += 1;
        }
        markers
    }

    /// The innermost function that most of a stretch was in.
    fn most_common_leaf(&self, stretch: &[Sample]) -> String {
        let mut weights: HashMap<u32, u64> = HashMap::new();
        for sample in stretch {
            let weight = weights.entry(sample.row).or_default();
            *weight = weight.saturating_add(sample.weight);
        }
        let most = weights
            .into_iter()
            .max_by_key(|&(row, ns)| (ns, Reverse(row)));
        let labels = most.and_then(|(row, _)| self.stacks.labels(row as usize));
        let is_function = |label: &Label| !matches!(label, Label::State(_));
        let leaf = labels.and_then(|labels| labels.into_iter().rfind(is_function));
        leaf.map_or_else(String::new, |leaf| {
            self.stacks.text(Frame::Label(leaf)).into_owned()
        })
    }

    /// The modules, and the tables of strings, stacks, frames and functions.
    fn tables(self) -> (Vec<Value>, Value) {
        let (stacks, mut strings) = (self.stacks, self.strings);
        let mut modules: IndexSet<&str> = IndexSet::new();
        let (mut names, mut resources) = (Vec::new(), Vec::new());
        for &function in &self.functions {
            names.push(number(&mut strings, &stacks.text(function)));
            resources.push(match stacks.module(function) {
                "" => -1,
                module => modules.insert_full(module).0 as i64,
            });
        }
        let module_names: Vec<usize> = modules.iter().map(|m| number(&mut strings, m)).collect();
        let libs = modules.iter().map(|module| {
            json!({
                "arch": "", "name": module, "path": module, "debugName": module,
                "debugPath": module, "breakpadId": "", "codeId": null,
            })
        });
        let libs: Vec<Value> = libs.collect();
        let (n_functions, n_frames, n_modules) = (names.len(), self.frames.len(), libs.len());
        let (callers, frames_of_nodes): (Vec<_>, Vec<_>) = self.nodes.into_iter().unzip();
        let (functions, categories): (Vec<_>, Vec<_>) = self.frames.into_iter().unzip();
        let nulls = |n| vec![Value::Null; n];
        let shared = json!({
            "stringArray": strings.into_iter().collect::<Vec<_>>(),
            "stackTable": {
                "length": callers.len(),
                "frame": frames_of_nodes,
                "prefix": callers,
            },
            // Names are final: no addresses.
            "frameTable": {
                "address": vec![-1; n_frames],
                "inlineDepth": vec![0; n_frames],
                "category": categories,
                "subcategory": vec![0; n_frames],
                "func": functions,
                "nativeSymbol": nulls(n_frames),
                "innerWindowID": nulls(n_frames),
                "line": nulls(n_frames),
                "column": nulls(n_frames),
                "length": n_frames,
            },
            "funcTable": {
                "name": names,
                "isJS": vec![false; n_functions],
                "relevantForJS": vec![false; n_functions],
                "resource": resources,
                "source": nulls(n_functions),
                "lineNumber": nulls(n_functions),
                "columnNumber": nulls(n_functions),
                "length": n_functions,
            },
            // Libraries.
            "resourceTable": {
                "lib": (0..n_modules).collect::<Vec<_>>(),
                "name": module_names,
                "host": nulls(n_modules),
                "type": vec![1; n_modules],
                "length": n_modules,
            },
            "nativeSymbols": {
                "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0,
            },
            "sources": {
                "id": [], "filename": [], "startLine": [], "startColumn": [],
                "sourceMapURL": [], "length": 0,
            },
        });
        (libs, shared)
    }
}

/// The time from the start to the end of samples that follow each other, ns.
fn length_ns(samples: &[Sample]) -> u64 {
    let end = samples.last().map_or(0, Sample::end);
    samples.first().map_or(0, |s| end.saturating_sub(s.start))
}

/// The number of a state's category.
fn category(state: State) -> usize {
    OTHER + 1 + state as usize
}

fn color(state: State) -> &'static str {
    match state {
        State::OnCpu => "green",
        State::Guest => "magenta",
        State::Runnable => "yellow",
        State::Lock => "red",
        State::Disk => "purple",
        State::Net => "blue",
        State::Sleep => "lightblue",
        State::Idle | State::PlaceUnknown => "transparent",
        State::Blocked | State::Throttle => "orange",
        State::StealIrq => "brown",
        State::Unknown => "darkgrey",
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
