//! A stream of spans to a [`Profile`].
//!
//! Memory grows with distinct (thread, state, wait, stack), not with spans.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use wcprof_trace::FastState;
use wcprof_trace::model::{
    LockOwner, Process, ProcessId, Span, SymbolTable, Tables, ThreadId, WaitId,
};
use wcprof_types::{Avma, Tid, TimeNs, Wait, osd_id, program_name, vm_name};

use crate::batch::SpanBatch;
use crate::classify::{Classifier, Subject};
use crate::functions::Functions;
use crate::index::{Hint, Index, Key};
use crate::locks::{Found, LockTimes, Share, is_recursive, kind_of, owner, raw_state};
use crate::model::{
    Function, Holder, LockKind, LockRow, Profile, ProfileModule, ProfileProcess, ProfileStack,
    ProfileStackId, ProfileThread, Row, State, TimeAxis, UnknownHolder,
};
use crate::pools::pools;
use crate::renamed::RenamedStacks;
use crate::rules::Rules;
use crate::slices::{Blocks, Cutter, GrowingSlices, Slices};
use crate::span_rows::SpanRows;
use crate::stacks::Stacks;

/// The name of the thread (tid 0) that holds the CPU time of threads that exited unseen.
const EXITED: &str = "[exited threads, not sampled]";

#[derive(Clone, Debug, Default)]
struct Sum {
    weight: u64,
    n_samples: u64,
    slices: GrowingSlices,
}

/// A span's part in the window.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Part {
    /// Since the window begins, ns.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
}

/// What of a span lies in the window; `None` for nothing. Parts of adjacent windows add up.
#[inline]
pub(crate) fn part(span: &Span, window: Option<(TimeNs, TimeNs)>) -> Option<Part> {
    let (start, end) = (span.start.0, span.end.0.max(span.start.0));
    let n_samples = u64::from(span.n_samples);
    match window {
        Some(window) => part_of_window(span, window),
        None => Some(Part {
            start,
            end,
            weight: span.weight,
            n_samples,
        }),
    }
}

fn part_of_window(span: &Span, (from, to): (TimeNs, TimeNs)) -> Option<Part> {
    let (start, end) = (span.start.0, span.end.0.max(span.start.0));
    let n_samples = u64::from(span.n_samples);
    // A moment belongs to the window that it ends, so that the last moment has one.
    if start == end && !(from.0 < end && end <= to.0 || (end == 0 && from.0 == 0)) {
        return None;
    }
    if start != end && (end <= from.0 || to.0 <= start) {
        return None;
    }
    let (a, b) = (start.max(from.0), end.min(to.0));
    let until = |whole: u64, time: u64| match end - start {
        0 => whole,
        length => (u128::from(whole) * u128::from(time - start) / u128::from(length)) as u64,
    };
    let share = |whole| match start == end {
        true => whole,
        false => until(whole, b) - until(whole, a),
    };
    Some(Part {
        start: a - from.0.min(a),
        end: b - from.0.min(b),
        weight: share(span.weight),
        n_samples: share(n_samples),
    })
}

/// The end of what of a span lies in the window, since the window begins.
fn end_in(span: &Span, window: Option<(TimeNs, TimeNs)>) -> Option<u64> {
    match window {
        None => Some(span.end.0.max(span.start.0)),
        Some(_) => part(span, window).map(|part| part.end),
    }
}

/// Spans that are looked for before the first of them is added.
const N_AHEAD: usize = 32;

/// Where a span's sum probably is, and what of the span counts.
#[derive(Copy, Clone)]
struct Ahead {
    key: Key,
    hint: Hint,
    part: Part,
}

/// Adds up spans, then names, classifies and groups them.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    sums: Index<Sum>,
    /// By sum: the place of its first span among all.
    firsts: Vec<u64>,
    blocks: Blocks,
    n_spans: u64,
    /// Times outside are left out.
    window: Option<(TimeNs, TimeNs)>,
    renamed: RenamedStacks,
    /// Frames of one function at several source lines are kept apart.
    lines: bool,
    cutter: Cutter,
    /// The latest end of a span, since the window begins.
    latest: u64,
    locks: LockTimes,
    /// By sum: what its lock's memory showed.
    held: HashMap<usize, BTreeMap<Share, u64>>,
}

impl ProfileBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes of each span what lies in `from..to` (since the recording began). Profiles of windows
    /// that follow each other add up to that of the whole.
    pub fn with_window(self, from: TimeNs, to: TimeNs) -> Self {
        Self {
            window: Some((from, to.max(from))),
            ..self
        }
    }

    /// For a trace that was read before: keeps spans of a stack whose code was replaced apart by
    /// what ran at their time.
    pub fn with_renamed(self, renamed: RenamedStacks) -> Self {
        Self { renamed, ..self }
    }

    /// Keeps frames of one function at several source lines apart, and shows the lines.
    pub fn with_lines(self) -> Self {
        Self {
            lines: true,
            ..self
        }
    }

    /// For a trace with looks at locks that was read before.
    pub fn with_locks(self, locks: LockTimes) -> Self {
        Self { locks, ..self }
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        self.widen_for(span);
        if let Some(ahead) = self.look_for(span) {
            self.add(&ahead, span, self.n_spans);
        }
        self.n_spans += 1;
    }

    /// Adds many spans, as [`add_span`](Self::add_span) would one after another, but thread by thread:
    /// what one thread did fits the processor's caches.
    pub fn add_batch(&mut self, batch: &SpanBatch) {
        if self.cutter.is_beyond(batch.latest().0) {
            // Slices become longer somewhere in between.
            batch.in_order().for_each(|span| self.add_span(span));
            return;
        }
        let (spans, order) = batch.by_thread();
        let mut ahead = Vec::with_capacity(N_AHEAD);
        for (spans, order) in spans.chunks(N_AHEAD).zip(order.chunks(N_AHEAD)) {
            ahead.clear();
            ahead.extend(spans.iter().map(|span| self.look_for(span)));
            for ahead in ahead.iter_mut().flatten() {
                self.sums.confirm(&ahead.key, &mut ahead.hint);
            }
            for ((ahead, span), &at) in ahead.iter().zip(spans).zip(order) {
                if let Some(ahead) = ahead {
                    self.add(ahead, span, self.n_spans + u64::from(at));
                }
            }
        }
        self.n_spans += spans.len() as u64;
    }

    /// `None` for a span outside the window.
    #[inline]
    fn look_for(&self, span: &Span) -> Option<Ahead> {
        let part = part(span, self.window)?;
        let key = Key::of(span, &self.renamed);
        let hint = self.sums.hint(&key);
        Some(Ahead { key, hint, part })
    }

    /// Makes slices long enough for a span.
    fn widen_for(&mut self, span: &Span) {
        let Some(end) = end_in(span, self.window) else {
            return;
        };
        while self.cutter.is_beyond(end) {
            let all = self.sums.values_mut().map(|sum| &mut sum.slices);
            self.cutter.widen(all, &mut self.blocks);
        }
    }

    #[inline]
    fn add(&mut self, ahead: &Ahead, span: &Span, ordinal: u64) {
        let Ahead { key, hint, part } = ahead;
        self.latest = self.latest.max(part.end);
        let (at, sum) = self.sums.get_or_insert(key, *hint, Sum::default);
        sum.add(part, self.cutter, &mut self.blocks);
        if at == self.firsts.len() {
            self.firsts.push(ordinal);
        }
        if !self.locks.is_empty() && self.locks.is_wait(span) {
            let begin = self.window.map_or(0, |(from, _)| from.0);
            let span = Span {
                start: TimeNs(part.start + begin),
                end: TimeNs(part.end + begin),
                weight: part.weight,
                ..span.clone()
            };
            let held = self.held.entry(at).or_default();
            self.locks.shares(&span, held);
        }
    }

    /// Indices of sums in the order in which they first appeared.
    fn in_order(&self) -> Vec<usize> {
        let firsts = self.firsts.iter().copied();
        let mut order: Vec<(u64, usize)> = firsts.zip(0..).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// The part of the recording that the spans are about, and how often slices must become twice
    /// as long for it.
    fn axis(&self, tables: &Tables) -> (TimeAxis, u32) {
        let duration = tables.stats.duration.0;
        let (start, end) = match self.window {
            None => (0, duration.max(self.latest)),
            Some((from, to)) => {
                let end = to.0.min(duration.max(from.0.saturating_add(self.latest)));
                (from.0, end.max(from.0))
            }
        };
        let mut cutter = self.cutter;
        let mut n_halvings = 0;
        // The recording may go on long after its last span.
        while cutter.is_beyond(end - start) {
            cutter.widen(std::iter::empty(), &mut Blocks::default());
            n_halvings += 1;
        }
        let axis = TimeAxis {
            start: TimeNs(start),
            end: TimeNs(end),
            slice_ns: cutter.slice_ns(),
            is_window: self.window.is_some(),
        };
        (axis, n_halvings)
    }

    /// Names frames by `symbols` (else by those saved in the trace), turns waits into states by
    /// `rules` and puts threads into pools.
    ///
    /// Spans of threads that `tables` lack are left out; the trace reader refuses such traces.
    ///
    /// The kernel's functions below user stacks are left out.
    pub fn finish(&self, tables: &Tables, symbols: Option<&SymbolTable>, rules: &Rules) -> Profile {
        self.build(tables, symbols, rules, true, |_, _| {})
    }

    /// The same with the kernel's functions where they were recorded. States are the same.
    pub fn finish_with_kernel(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
    ) -> Profile {
        self.build(tables, symbols, rules, false, |_, _| {})
    }

    /// A profile as [`finish`](Self::finish) makes it (with the kernel's functions if asked), and what
    /// finds the row of each span that was added.
    pub fn finish_indexed(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        with_kernel: bool,
    ) -> (Profile, SpanRows) {
        let mut rows = vec![None; self.sums.len()];
        let profile = self.build(tables, symbols, rules, !with_kernel, |sum, row| {
            rows[sum] = Some(row);
        });
        let found = SpanRows {
            rows: self.sums.map(|sum| rows[sum]),
            window: self.window,
            renamed: self.renamed.clone(),
        };
        (profile, found)
    }

    fn build(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        without_kernel: bool,
        mut each: impl FnMut(usize, usize),
    ) -> Profile {
        let symbols = symbols.or(tables.symbols.as_ref());
        let (time, n_halvings) = self.axis(tables);
        let mut threads: Vec<ProfileThread> = tables
            .threads
            .iter()
            .map(|thread| {
                let process = tables.processes.get(thread.process.0 as usize);
                let (start, end) = match time.is_window {
                    true => (
                        thread.start.max(time.start),
                        thread.end.min(time.end).max(time.start),
                    ),
                    false => (thread.start, thread.end),
                };
                let observed = end.0.saturating_sub(start.0);
                ProfileThread {
                    process: thread.process.0 as usize,
                    pid: process.map_or(wcprof_types::Pid(0), |p| p.pid),
                    process_comm: process.map_or_else(String::new, |p| p.comm.clone()),
                    tid: thread.tid,
                    comm: match thread.tid.0 {
                        0 => EXITED.to_owned(),
                        _ => thread.name().to_owned(),
                    },
                    pool: 0,
                    n_ticks: match thread.end.0.saturating_sub(thread.start.0) {
                        0 => thread.n_ticks,
                        whole => {
                            let ticks = u128::from(thread.n_ticks) * u128::from(observed);
                            (ticks / u128::from(whole)) as u64
                        }
                    },
                    observed_ns: observed,
                }
            })
            .collect();
        let pools = pools(&mut threads, rules);

        let mut functions = Functions::new(self.lines);
        let mut stacks = Stacks::new(without_kernel);
        let mut classifier = Classifier::new(rules);
        let mut waits = Vec::new();
        let mut wait_ids: HashMap<WaitId, u32, FastState> = HashMap::default();
        let mut same_waits: HashMap<Wait, u32> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut row_ids: HashMap<_, usize, FastState> = HashMap::default();
        let mut lock_rows = LockRows::default();
        for at_sum in self.in_order() {
            let Some((key, sum)) = self.sums.get(at_sum) else {
                continue;
            };
            let at = key.thread().0 as usize;
            let Some(thread) = threads.get(at) else {
                continue;
            };
            let wait = key
                .wait()
                .and_then(|id| Some((id, tables.waits.get(id.0 as usize)?)));
            let mut stack = key
                .stack()
                .and_then(|id| stacks.of_trace(id, key.since, &mut functions, tables, symbols));
            if let Some((_, w)) = wait
                && !w.kernel.is_empty()
                && stack.is_none_or(|id| stacks.is_empty(id))
            {
                stack = Some(stacks.of_kernel_place(&w.kernel, &mut functions));
            }
            let state = classifier.state(&Subject {
                raw: key.state(),
                wait: wait.map(|(_, w)| w),
                stack,
                stacks: &stacks.list,
                functions: &functions.list,
                comm: &thread.comm,
                pool: pools.get(thread.pool).map_or("", |p| p.name.as_str()),
                process: &thread.process_comm,
            });
            if state == State::Lock {
                let lost = Lost {
                    thread: key.thread(),
                    stack,
                    wait: wait.map(|(_, w)| w),
                };
                let kind = lost.kind(&stacks.list, &functions.list);
                let shares = self.shares_of(at_sum, sum.weight);
                for (share, weight) in shares {
                    let found = share.found.and_then(|id| self.locks.found(id));
                    let owner = lost.owner(kind, found);
                    let holder = owner.map(|owner| {
                        let wait = owner.wait.and_then(|id| tables.waits.get(id.0 as usize));
                        let stack = owner.stack.and_then(|id| {
                            stacks.of_trace(id, key.since, &mut functions, tables, symbols)
                        });
                        let of = threads.get(owner.thread.0 as usize);
                        let state = classifier.state(&Subject {
                            raw: raw_state(owner.state),
                            wait,
                            stack,
                            stacks: &stacks.list,
                            functions: &functions.list,
                            comm: of.map_or("", |t| t.comm.as_str()),
                            pool: of
                                .map_or("", |t| pools.get(t.pool).map_or("", |p| p.name.as_str())),
                            process: of.map_or("", |t| t.process_comm.as_str()),
                        });
                        Holder {
                            tid: of.map_or(Tid(0), |t| t.tid),
                            pool: of.map_or(usize::MAX, |t| t.pool),
                            state,
                            stack,
                            uncertain: owner.moved || share.moved,
                        }
                    });
                    lock_rows.add(LockRow {
                        thread: at,
                        stack,
                        address: lost.wait.and_then(|w| w.futex),
                        kind,
                        recursive: found.is_some_and(|f| is_recursive(kind, &f.words)),
                        holder,
                        weight,
                    });
                }
            }
            // Waits for several locks at one place are one row.
            let wait = wait.map(|(id, w)| {
                *wait_ids.entry(id).or_insert_with(|| {
                    let wait = Wait {
                        futex: None,
                        ..w.clone()
                    };
                    *same_waits.entry(wait).or_insert_with_key(|wait| {
                        waits.push(wait.clone());
                        (waits.len() - 1) as u32
                    })
                })
            });
            let row = *row_ids.entry((at, state, stack, wait)).or_insert_with(|| {
                rows.push(Row {
                    thread: at,
                    state,
                    stack,
                    wait,
                    weight: 0,
                    n_samples: 0,
                    slices: Slices::default(),
                });
                rows.len() - 1
            });
            each(at_sum, row);
            rows[row]
                .slices
                .merge(&sum.slices, &self.blocks, n_halvings);
            rows[row].weight = rows[row].weight.saturating_add(sum.weight);
            rows[row].n_samples = rows[row].n_samples.saturating_add(sum.n_samples);
        }
        for row in &rows {
            // The stand-in thread has no lifetime of its own.
            if threads[row.thread].tid.0 == 0 {
                threads[row.thread].observed_ns = 0;
            }
        }
        for row in &rows {
            let thread = &mut threads[row.thread];
            if thread.tid.0 == 0 {
                thread.observed_ns = thread.observed_ns.saturating_add(row.weight);
            }
        }
        Profile {
            header: tables.header.clone(),
            stats: tables.stats.clone(),
            recorded_ns: recorded_ns(tables),
            time,
            processes: processes(tables, &time, rules),
            modules: modules(tables),
            functions: functions.list,
            stacks: stacks.list,
            threads,
            pools,
            waits,
            rows,
            locks: lock_rows.list,
        }
    }

    /// What a sum's lock showed; without looks, that nobody looked.
    fn shares_of(&self, sum: usize, weight: u64) -> Vec<(Share, u64)> {
        match self.held.get(&sum) {
            Some(held) if !held.is_empty() => held.iter().map(|(s, w)| (*s, *w)).collect(),
            _ => vec![(Share::NOT_LOOKED, weight)],
        }
    }
}

/// Time of one thread in one wait for a lock.
struct Lost<'a> {
    thread: ThreadId,
    stack: Option<ProfileStackId>,
    wait: Option<&'a Wait>,
}

impl Lost<'_> {
    fn kind(&self, stacks: &[ProfileStack], functions: &[Function]) -> LockKind {
        let stack = self.stack.and_then(|id| stacks.get(id.0 as usize));
        match (stack, self.wait) {
            (Some(stack), Some(wait)) => kind_of(stack, functions, wait),
            _ => LockKind::Other,
        }
    }

    fn owner(&self, kind: LockKind, found: Option<&Found>) -> Result<LockOwner, UnknownHolder> {
        match (kind, self.wait, found) {
            (LockKind::Other, ..) => Err(UnknownHolder::NotRecorded),
            (_, Some(wait), Some(found)) => owner(kind, wait, found, self.thread),
            _ => Err(UnknownHolder::NotLooked),
        }
    }
}

/// Rows of locks, each once.
#[derive(Default)]
struct LockRows {
    list: Vec<LockRow>,
    ids: HashMap<LockKey, usize>,
}

type LockKey = (
    usize,
    Option<ProfileStackId>,
    Option<Avma>,
    (LockKind, bool),
    Result<Holder, UnknownHolder>,
);

impl LockRows {
    fn add(&mut self, row: LockRow) {
        let kind = (row.kind, row.recursive);
        let key = (row.thread, row.stack, row.address, kind, row.holder);
        match self.ids.get(&key).and_then(|&id| self.list.get_mut(id)) {
            Some(known) => known.weight = known.weight.saturating_add(row.weight),
            None => {
                self.ids.insert(key, self.list.len());
                self.list.push(row);
            }
        }
    }
}

impl Sum {
    #[inline]
    fn add(&mut self, part: &Part, cutter: Cutter, blocks: &mut Blocks) {
        self.weight = self.weight.saturating_add(part.weight);
        self.n_samples = self.n_samples.saturating_add(part.n_samples);
        if part.weight > 0 {
            let interval = (part.start, part.end);
            cutter.add(&mut self.slices, blocks, interval, part.weight);
        }
    }
}

fn recorded_ns(tables: &Tables) -> u64 {
    match tables.sources.as_slice() {
        [] => tables.stats.duration.0,
        sources => sources
            .iter()
            .fold(0, |sum, source| sum.saturating_add(source.duration.0)),
    }
}

fn processes(tables: &Tables, time: &TimeAxis, rules: &Rules) -> Vec<ProfileProcess> {
    let ids = (0..).map(ProcessId);
    let of = |(id, process): (ProcessId, &Process)| {
        let (start, end) = match tables.source_of(id) {
            Some(source) => (
                source.start.0,
                source.start.0.saturating_add(source.duration.0),
            ),
            None => (0, tables.stats.duration.0),
        };
        let recorded_ns = match time.is_window {
            true => end.min(time.end.0).saturating_sub(start.max(time.start.0)),
            false => end - start,
        };
        let Process { comm, cmdline, .. } = process;
        let title = osd_id(comm, cmdline)
            .map(|id| format!("osd.{id}"))
            .or_else(|| vm_name(comm, cmdline));
        ProfileProcess {
            pid: process.pid,
            comm: comm.clone(),
            cgroup: process.cgroup.clone(),
            title: title.unwrap_or_else(|| comm.clone()),
            class: rules.class(comm, program_name(cmdline)).to_owned(),
            host: tables.host_of(id).to_owned(),
            recorded_ns,
            ended: tables.process_ends.get(&id).map(|end| end.reason.clone()),
        }
    };
    ids.zip(&tables.processes).map(of).collect()
}

/// Distinct modules by file name and build-id.
fn modules(tables: &Tables) -> Vec<ProfileModule> {
    let distinct: BTreeSet<_> = tables
        .modules
        .iter()
        .map(|module| ProfileModule {
            name: module.file_name().to_owned(),
            build_id: module.build_id.clone(),
        })
        .collect();
    distinct.into_iter().collect()
}
