//! The Firefox Profiler's processed profile: a JSON document for profiler.firefox.com.
//!
//! A thread is a track. States are categories (and colors of the track), of the sample's frames
//! too. Weights are milliseconds of wall-clock time; a sample is where its time begins. Stretches of
//! a millisecond and more in one state other than idle are markers.

mod format;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use format::{
    Category, Document, Entry, Lib, MARKER, MarkerField, MarkerSchema, Markers, Meta, Samples,
    Section, Shared, Thread, ms,
};
use wcprof_profile::model::{Profile, ProfileThread, State};
use wcprof_profile::{Label, View};

use crate::origin::{recorded_by, started_unix_ns};
use crate::speedscope::nothing;
use crate::stacks::{Frame, Stacks};
use crate::timeline::{Sample, Timeline};

/// Stretches shorter than this are not marked, ns.
const MIN_MARKER_NS: u64 = 1_000_000;
/// Samples with no more time than this between them follow each other, ns.
const MAX_GAP_NS: u64 = 10_000;
/// Most markers of a thread; the longest are kept.
const MAX_MARKERS: usize = 20_000;
/// Threads whose tracks are open at first.
const N_VISIBLE: usize = 16;
/// The category that viewers fall back to.
const OTHER: usize = 0;

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
        shared: Shared::default(),
        libs: Vec::new(),
        resources: HashMap::new(),
        functions: HashMap::new(),
        frames: HashMap::new(),
        nodes: HashMap::new(),
        of_row: vec![None; profile.rows.len()],
        n_unmarked: 0,
    };
    let mut threads: Vec<(u64, usize)> = (0..profile.threads.len())
        .map(|at| (builder.shown(timeline.of_thread(at)), at))
        .filter(|(weight, _)| *weight > 0)
        .collect();
    if threads.is_empty() {
        return Err(nothing());
    }
    // The busiest threads are the ones shown at first.
    threads.sort_by_key(|&(weight, at)| (std::cmp::Reverse(weight), at));
    let threads: Vec<Thread<'_>> = threads
        .into_iter()
        .filter_map(|(_, at)| {
            let thread = profile.threads.get(at)?;
            Some(builder.thread(thread, timeline.of_thread(at)))
        })
        .collect();
    let document = Document {
        meta: meta(profile, title, threads.len(), builder.n_unmarked),
        libs: builder.libs,
        shared: builder.shared,
        threads,
    };
    serde_json::to_writer(out, &document).map_err(io::Error::from)
}

fn meta<'p>(profile: &'p Profile, title: &'p str, n_threads: usize, n_unmarked: usize) -> Meta<'p> {
    let rate = match profile.header.rate_hz {
        0 => 100,
        hz => hz,
    };
    let other = Category {
        name: "other",
        color: "grey",
        subcategories: ["Other"],
    };
    let of_states = State::ALL.iter().map(|&state| Category {
        name: state.name(),
        color: color(state),
        subcategories: ["Other"],
    });
    let notes = profile.header.notes.iter();
    let mut entries = vec![entry("Recorded by", recorded_by(profile).into())];
    entries.extend(notes.map(|note| entry("Note", note.into())));
    if n_unmarked > 0 {
        let n = format!("{n_unmarked} (short ones, of threads with more than {MAX_MARKERS})");
        entries.push(entry("Stretches without a marker", n.into()));
    }
    Meta {
        interval: 1000.0 / f64::from(rate),
        start_time: ms(started_unix_ns(profile)),
        product: title,
        logical_cpus: Some(profile.header.n_cpus).filter(|n| *n > 0),
        categories: std::iter::once(other).chain(of_states).collect(),
        marker_schema: vec![MarkerSchema {
            name: MARKER,
            chart_label: "{marker.data.function}",
            table_label: "{marker.name} in {marker.data.function}",
            display: &["marker-chart", "marker-table", "timeline-overview"],
            fields: vec![MarkerField {
                key: "function",
                label: "Mostly in",
                format: "unique-string",
            }],
            description: "The thread was in one state all the time.",
        }],
        extra: vec![Section {
            label: "Recording",
            entries,
        }],
        initial_visible_threads: (0..n_threads.min(N_VISIBLE)).collect(),
        initial_selected_threads: vec![0],
        ..Meta::default()
    }
}

fn entry<'a>(label: &'static str, value: Cow<'a, str>) -> Entry<'a> {
    Entry {
        label,
        format: "string",
        value,
    }
}

struct Builder<'p> {
    profile: &'p Profile,
    stacks: Stacks<'p>,
    shared: Shared,
    libs: Vec<Lib<'p>>,
    /// By module.
    resources: HashMap<&'p str, usize>,
    functions: HashMap<Frame, usize>,
    /// By function and category.
    frames: HashMap<(usize, usize), usize>,
    /// By caller's stack and frame.
    nodes: HashMap<(Option<usize>, usize), usize>,
    /// By row, once it is known.
    of_row: Vec<Option<usize>>,
    /// Stretches without a marker because there are too many.
    n_unmarked: usize,
}

impl<'p> Builder<'p> {
    fn state(&self, sample: &Sample) -> State {
        let row = self.profile.rows.get(sample.row as usize);
        row.map_or(State::Unknown, |row| row.state)
    }

    fn shows(&self, sample: &Sample) -> bool {
        self.stacks.shows(sample.row as usize)
    }

    /// The time of a thread that is shown, ns.
    fn shown(&self, samples: &[Sample]) -> u64 {
        let shown = samples.iter().filter(|s| self.shows(s));
        shown.fold(0, |sum, s| sum.saturating_add(s.weight))
    }

    fn thread(&mut self, thread: &'p ProfileThread, all: &[Sample]) -> Thread<'p> {
        let mut samples = Samples::default();
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
        Thread {
            process_type: "default",
            process_startup_time: 0.0,
            process_shutdown_time: None,
            register_time: ms(all.first().map_or(0, |s| s.start)),
            unregister_time: all.last().map(|s| ms(s.end())),
            paused_ranges: [],
            show_markers_in_timeline: true,
            name: &thread.comm,
            is_main_thread: thread.pid.0 == thread.tid.0,
            process_name: &thread.process_comm,
            pid: thread.pid.to_string(),
            tid: thread.tid.0,
            samples,
            markers: self.markers(all),
        }
    }

    /// The stack of a sample that is shown.
    fn stack(&mut self, sample: &Sample) -> Option<usize> {
        let row = sample.row as usize;
        if let Some(&Some(stack)) = self.of_row.get(row) {
            return Some(stack);
        }
        let category = category(self.state(sample));
        let mut stack = None;
        for frame in self.stacks.frames(row)? {
            let function = self.function(frame);
            let table = &mut self.shared.frame_table;
            let frame = *self
                .frames
                .entry((function, category))
                .or_insert_with(|| table.push(function, category));
            let table = &mut self.shared.stack_table;
            let node = self.nodes.entry((stack, frame));
            stack = Some(*node.or_insert_with(|| table.push(stack, frame)));
        }
        if let Some(known) = self.of_row.get_mut(row) {
            *known = stack;
        }
        stack
    }

    fn function(&mut self, frame: Frame) -> usize {
        if let Some(&id) = self.functions.get(&frame) {
            return id;
        }
        let name = self.shared.string_array.id(&self.stacks.text(frame));
        let resource = match self.stacks.module(frame) {
            "" => None,
            module => Some(self.resource(module)),
        };
        let id = self.shared.func_table.push(name, resource);
        self.functions.insert(frame, id);
        id
    }

    fn resource(&mut self, module: &'p str) -> usize {
        if let Some(&id) = self.resources.get(module) {
            return id;
        }
        self.libs.push(Lib {
            arch: "",
            name: module,
            path: module,
            debug_name: module,
            debug_path: module,
            breakpad_id: "",
            code_id: None,
        });
        let name = self.shared.string_array.id(module);
        let table = &mut self.shared.resource_table;
        let id = table.push(self.libs.len() - 1, name);
        self.resources.insert(module, id);
        id
    }

    /// Marks stretches of one state.
    fn markers(&mut self, samples: &[Sample]) -> Markers {
        let mut stretches: Vec<&[Sample]> = samples
            .chunk_by(|a, b| {
                let is_next = a.end().saturating_add(MAX_GAP_NS) >= b.start;
                is_next && self.state(a) == self.state(b) && self.shows(a) == self.shows(b)
            })
            .filter(|stretch| {
                let Some(first) = stretch.first() else {
                    return false;
                };
                self.shows(first)
                    && !matches!(self.state(first), State::Idle | State::Unknown)
                    && length(stretch) >= MIN_MARKER_NS
            })
            .collect();
        let left_out = stretches.len().saturating_sub(MAX_MARKERS);
        if left_out > 0 {
            self.n_unmarked += left_out;
            stretches.sort_by_key(|s| std::cmp::Reverse(length(s)));
            stretches.truncate(MAX_MARKERS);
            stretches.sort_by_key(|s| s.first().map(|s| s.start));
        }
        let mut markers = Markers::default();
        for stretch in stretches {
            let Some(first) = stretch.first() else {
                continue;
            };
            let state = self.state(first);
            let function = self.mostly_in(stretch);
            let strings = &mut self.shared.string_array;
            let (name, function) = (strings.id(state.name()), strings.id(&function));
            let times = (first.start, first.start.saturating_add(length(stretch)));
            markers.push(times, name, category(state), function);
        }
        markers
    }

    /// The innermost function that most of a stretch was in.
    fn mostly_in(&self, stretch: &[Sample]) -> String {
        let mut weights: HashMap<u32, u64> = HashMap::new();
        for sample in stretch {
            let weight = weights.entry(sample.row).or_default();
            *weight = weight.saturating_add(sample.weight);
        }
        weights
            .into_iter()
            .max_by_key(|&(row, weight)| (weight, std::cmp::Reverse(row)))
            .and_then(|(row, _)| {
                let labels = self.stacks.labels(row as usize)?;
                let leaf = labels
                    .iter()
                    .rfind(|label| !matches!(label, Label::State(_)))?;
                Some(self.stacks.text(Frame::Label(*leaf)).into_owned())
            })
            .unwrap_or_default()
    }
}

/// The time from the begin to the end of samples that follow each other, ns.
fn length(samples: &[Sample]) -> u64 {
    let start = samples.first().map_or(0, |s| s.start);
    samples.last().map_or(0, Sample::end).saturating_sub(start)
}

/// The index of a state's category.
fn category(state: State) -> usize {
    let at = State::ALL.iter().position(|s| *s == state);
    at.map_or(OTHER, |at| at + 1)
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
        State::Idle => "transparent",
        State::Blocked => "orange",
        State::StealIrq => "brown",
        State::Unknown => "darkgrey",
    }
}
