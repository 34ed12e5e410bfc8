//! A stream of spans to a [`Profile`].
//!
//! Memory grows with distinct (thread, state, wait, stack), not with spans.

use std::collections::{BTreeSet, HashMap};

use wcprof_trace::FastState;
use wcprof_trace::model::{
    LockOwner, Process, ProcessId, Span, SymbolTable, Tables, ThreadId, WaitId,
};
use wcprof_types::{Avma, Tid, TimeNs, Wait, osd_id, program_name, vm_name};

use crate::classify::{Classifier, Subject};
use crate::functions::Functions;
use crate::locks::{Found, LockTimes, is_recursive, kind_of, owner, raw_state};
use crate::model::{
    Function, Holder, LockKind, LockRow, Profile, ProfileModule, ProfileProcess, ProfileStack,
    ProfileStackId, ProfileThread, Row, State, TimeAxis, UnknownHolder,
};
use crate::pools::pools;
use crate::renamed::RenamedStacks;
use crate::rules::Rules;
use crate::slices::{Blocks, Slices};
use crate::span_rows::SpanRows;
use crate::stacks::Stacks;
use crate::sums::{Adder, N_SHARDS, Sums, Wanted};

/// The name of the thread (tid 0) that holds the CPU time of threads that exited unseen.
const EXITED: &str = "[exited threads, not sampled]";

/// Adds up spans, then names, classifies and groups them.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    shards: [Sums; N_SHARDS],
    wanted: Wanted,
    /// Frames of one function at several source lines are kept apart.
    lines: bool,
}

impl ProfileBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes of each span what lies in `from..to` (since the recording began). Profiles of windows
    /// that follow each other add up to that of the whole.
    pub fn with_window(mut self, from: TimeNs, to: TimeNs) -> Self {
        self.wanted.window = Some((from, to.max(from)));
        self
    }

    /// For a trace that was read before: keeps spans of a stack whose code was replaced apart by
    /// what ran at their time.
    pub fn with_renamed(mut self, renamed: RenamedStacks) -> Self {
        self.wanted.renamed = renamed;
        self
    }

    /// Keeps frames of one function at several source lines apart, and shows the lines.
    pub fn with_lines(self) -> Self {
        Self {
            lines: true,
            ..self
        }
    }

    /// For a trace with looks at locks that was read before.
    pub fn with_locks(mut self, locks: LockTimes) -> Self {
        self.wanted.locks = locks;
        self
    }

    /// Adds one span.
    pub fn add_span(&mut self, span: &Span) {
        for mut adder in self.adders() {
            adder.add_span(span);
        }
    }

    /// What adds up spans, each those of some threads: they can work side by side, and each must be given
    /// all spans, in the order of the trace.
    pub fn adders(&mut self) -> impl Iterator<Item = Adder<'_>> {
        let shards = self.shards.iter_mut().enumerate();
        shards.map(|(shard, sums)| Adder::new(shard, &self.wanted, sums))
    }

    /// Shard and index of all sums in the order in which they first appeared.
    fn in_order(&self) -> Vec<(usize, usize)> {
        let mut order = Vec::new();
        for (shard, sums) in self.shards.iter().enumerate() {
            let firsts = sums.firsts.iter().zip(0..);
            order.extend(firsts.map(|(&first, at)| (first, shard, at)));
        }
        order.sort_unstable();
        order
            .into_iter()
            .map(|(_, shard, at)| (shard, at))
            .collect()
    }

    /// The part of the recording that the spans are about, and how often slices must become twice
    /// as long for it.
    fn axis(&self, tables: &Tables) -> (TimeAxis, u32) {
        let duration = tables.stats.duration.0;
        let latest = self.shards.iter().fold(0, |end, sums| end.max(sums.latest));
        let (start, end) = match self.wanted.window {
            None => (0, duration.max(latest)),
            Some((from, to)) => {
                let end = to.0.min(duration.max(from.0.saturating_add(latest)));
                (from.0, end.max(from.0))
            }
        };
        // All shards have the same.
        let mut cutter = self.shards[0].cutter;
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
            is_window: self.wanted.window.is_some(),
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
        let mut rows: [Vec<Option<usize>>; N_SHARDS] =
            std::array::from_fn(|shard| vec![None; self.shards[shard].index.len()]);
        let profile = self.build(tables, symbols, rules, !with_kernel, |(shard, sum), row| {
            rows[shard][sum] = Some(row);
        });
        let of = |shard: usize| self.shards[shard].index.map(|sum| rows[shard][sum]);
        let found = SpanRows {
            rows: std::array::from_fn(of),
            window: self.wanted.window,
            renamed: self.wanted.renamed.clone(),
        };
        (profile, found)
    }

    fn build(
        &self,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
        rules: &Rules,
        without_kernel: bool,
        mut each: impl FnMut((usize, usize), usize),
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
        for (shard, at_sum) in self.in_order() {
            let sums = &self.shards[shard];
            let Some((key, sum)) = sums.index.get(at_sum) else {
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
                let shares = sums.shares_of(at_sum, sum.weight);
                for (share, weight) in shares {
                    let found = share.found.and_then(|id| self.wanted.locks.found(id));
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
            each((shard, at_sum), row);
            rows[row]
                .slices
                .merge(&sum.slices, &sums.blocks, n_halvings);
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
