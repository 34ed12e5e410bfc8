//! A snapshot to a trace: tables of what its spans refer to, numbered anew, and weights that add up.
//!
//! A span that begins before the cut gives the part of its weight that lies after it. That is exact
//! for all of a thread's time together only where its spans do not overlap; what the thread's sum is
//! then off is taken from, or given to, those of its spans that the cut goes through. So the weights
//! of each thread add up to the time it was observed after the cut.

use std::collections::BTreeMap;
use std::io::Write;

use wcprof_types::TimeNs;

use super::{RingThread, Snapshot};
use crate::error::TraceError;
use crate::model::{
    Frame, FrameId, LockLook, LockOwner, ModuleId, NodeId, ProcessId, Span, StackId, Stats, Tables,
    Thread, ThreadId, WaitId,
};
use crate::model::{Stack, StackNode};
use crate::writer::TraceWriter;

/// The end of a recording as a trace of its own.
#[derive(Debug)]
pub struct Cut<'a> {
    snapshot: &'a Snapshot,
    from: TimeNs,
    tables: Tables,
    ids: Ids,
    /// By thread of the trace: what its spans that the cut goes through lack (or have too much),
    /// ns.
    off: Vec<i64>,
}

/// Ids of the ring to those of the trace.
#[derive(Debug, Default)]
struct Ids {
    processes: BTreeMap<ProcessId, ProcessId>,
    modules: BTreeMap<ModuleId, ModuleId>,
    threads: Map,
    frames: Map,
    nodes: Map,
    stacks: Map,
    waits: Map,
}

/// Dense numbers in the order of first use.
#[derive(Debug, Default)]
struct Map {
    of: Vec<u32>,
    n: u32,
}

const NONE: u32 = u32::MAX;

impl Map {
    fn get(&self, id: u32) -> Option<u32> {
        self.of.get(id as usize).copied().filter(|&to| to != NONE)
    }

    fn add(&mut self, id: u32) -> u32 {
        let at = id as usize;
        if at >= self.of.len() {
            self.of.resize(at + 1, NONE);
        }
        self.of[at] = self.n;
        self.n += 1;
        self.n - 1
    }
}

impl<'a> Cut<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, from: TimeNs) -> Result<Self, TraceError> {
        let mut cut = Self {
            snapshot,
            from,
            tables: empty_tables(snapshot, from),
            ids: Ids::default(),
            off: Vec::new(),
        };
        cut.add_processes();
        cut.add_threads();
        let mut sums = vec![0_u64; cut.tables.threads.len()];
        let mut add = |cut: &mut Self, span: &Span| {
            if let Some(thread) = cut.ids.threads.get(span.thread.0)
                && let Some(weight) = part(span, from)
                && let Some(sum) = sums.get_mut(thread as usize)
            {
                *sum = sum.saturating_add(weight);
                cut.add_stack(span.stack);
                cut.add_wait(span.wait);
            }
        };
        for chunk in &snapshot.chunks {
            chunk.for_each(|span| {
                add(&mut cut, &span);
                Ok(())
            })?;
        }
        snapshot.rest.iter().for_each(|span| add(&mut cut, span));
        cut.off = cut
            .tables
            .threads
            .iter()
            .zip(sums)
            .map(|(thread, sum)| match thread.tid.0 {
                // Time of threads that exited unseen: it was not observed.
                0 => 0,
                _ => (thread.end.0 - thread.start.0) as i64 - sum as i64,
            })
            .collect();
        cut.add_locks();
        Ok(cut)
    }

    /// Everything of the trace but its spans.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// When it begins, since the recording began.
    pub fn from(&self) -> TimeNs {
        self.from
    }

    /// What a frame of the ring is in this trace.
    pub fn frame(&self, frame: FrameId) -> Option<FrameId> {
        self.ids.frames.get(frame.0).map(FrameId)
    }

    /// What a process of the ring is in this trace.
    pub fn process(&self, process: ProcessId) -> Option<ProcessId> {
        self.ids.processes.get(&process).copied()
    }

    /// Hands over the spans, about in the order of their ends.
    pub fn for_each_span(
        &self,
        mut each: impl FnMut(&Span) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let mut off = self.off.clone();
        let mut hand_over = |span: &Span| match self.span(span, &mut off) {
            Some(span) => each(&span),
            None => Ok(()),
        };
        for chunk in &self.snapshot.chunks {
            chunk.for_each(|span| hand_over(&span))?;
        }
        self.snapshot.rest.iter().try_for_each(hand_over)
    }

    /// Writes all of it, but no names of functions. The writer must be new, of the header of
    /// [`tables`](Self::tables): ids are then the same.
    pub fn write<W: Write>(
        &self,
        writer: &mut TraceWriter<W>,
        end_reason: &str,
    ) -> Result<(), TraceError> {
        let tables = &self.tables;
        writer.add_tables(tables)?;
        self.for_each_span(|span| writer.span(span))?;
        writer.finish(&Stats {
            end_reason: end_reason.to_owned(),
            complete: true,
            ..tables.stats.clone()
        })
    }

    /// A span as the trace has it; `None` for one before the cut.
    fn span(&self, span: &Span, off: &mut [i64]) -> Option<Span> {
        let thread = self.ids.threads.get(span.thread.0)?;
        let mut weight = part(span, self.from)?;
        let start = span.start.max(self.from);
        if span.start < self.from
            && let Some(off) = off.get_mut(thread as usize)
        {
            let length = (span.end.0 - start.0) as i64;
            let room = (-(weight as i64), (length - weight as i64).max(0));
            let taken = (*off).clamp(room.0, room.1);
            *off -= taken;
            weight = weight.saturating_add_signed(taken);
        }
        Some(Span {
            thread: ThreadId(thread),
            start: TimeNs(start.0 - self.from.0),
            end: TimeNs(span.end.0 - self.from.0),
            weight,
            n_samples: span.n_samples,
            state: span.state,
            wait: span
                .wait
                .and_then(|id| self.ids.waits.get(id.0))
                .map(WaitId),
            stack: span
                .stack
                .and_then(|id| self.ids.stacks.get(id.0))
                .map(StackId),
        })
    }

    fn since(&self, time: TimeNs) -> TimeNs {
        TimeNs(time.0.saturating_sub(self.from.0))
    }

    /// Processes that live, or of which a thread is in the trace; with their modules.
    fn add_processes(&mut self) {
        let of_threads: std::collections::BTreeSet<ProcessId> = self
            .snapshot
            .threads
            .iter()
            .flatten()
            .filter(|t| is_in(t, self.from))
            .map(|t| t.thread.process)
            .collect();
        for (&id, known) in &self.snapshot.processes {
            let over = known.end.as_ref().is_some_and(|e| e.time <= self.from);
            if over && !of_threads.contains(&id) {
                continue;
            }
            let new = ProcessId(self.tables.processes.len() as u32);
            self.ids.processes.insert(id, new);
            self.tables.processes.push(known.process.clone());
            if let Some(end) = &known.end {
                let mut end = end.clone();
                end.time = self.since(end.time);
                self.tables.process_ends.insert(new, end);
            }
        }
        for (&id, module) in &self.snapshot.modules {
            if let Some(&process) = self.ids.processes.get(&module.process) {
                let new = ModuleId(self.tables.modules.len() as u32);
                self.ids.modules.insert(id, new);
                let mut module = module.clone();
                module.process = process;
                self.tables.modules.push(module);
            }
        }
    }

    fn add_threads(&mut self) {
        for (id, known) in (0..).zip(&self.snapshot.threads) {
            let Some(known) = known.as_ref().filter(|t| is_in(t, self.from)) else {
                continue;
            };
            let Some(&process) = self.ids.processes.get(&known.thread.process) else {
                continue;
            };
            let new = ThreadId(self.ids.threads.add(id));
            let thread = self.thread(&known.thread, process);
            self.tables.threads.push(thread);
            let own_tids = &mut self.tables.locks.own_tids;
            own_tids.extend(known.own_tid.map(|own| (new, own)));
        }
    }

    fn thread(&self, known: &Thread, process: ProcessId) -> Thread {
        let whole = known.end.0 - known.start.0;
        let (start, end) = (self.since(known.start), self.since(known.end));
        let n_before = known.names.iter().skip(1);
        let n_before = n_before.take_while(|n| n.0 <= self.from).count();
        let names = known.names.iter().skip(n_before);
        Thread {
            process,
            tid: known.tid,
            names: names
                .map(|(seen, name)| (self.since(*seen).max(start), name.clone()))
                .collect(),
            start,
            end,
            n_ticks: match whole {
                0 => known.n_ticks,
                _ => scale(known.n_ticks, end.0 - start.0, whole),
            },
        }
    }

    fn add_stack(&mut self, stack: Option<StackId>) -> Option<StackId> {
        let id = stack?.0;
        if let Some(known) = self.ids.stacks.get(id) {
            return Some(StackId(known));
        }
        let value = *self.snapshot.stacks.get(id as usize)?.as_ref()?;
        let leaf = self.add_nodes(value.leaf);
        self.tables.stacks.push(Stack { leaf, ..value });
        Some(StackId(self.ids.stacks.add(id)))
    }

    /// Root first, so that a caller has a smaller id.
    fn add_nodes(&mut self, leaf: Option<NodeId>) -> Option<NodeId> {
        let mut new = Vec::new();
        let mut next = leaf;
        let mut caller = None;
        while let Some(id) = next {
            if let Some(known) = self.ids.nodes.get(id.0) {
                caller = Some(NodeId(known));
                break;
            }
            let Some(Some(node)) = self.snapshot.nodes.get(id.0 as usize) else {
                break;
            };
            new.push((id, *node));
            next = node.caller;
        }
        for (id, node) in new.into_iter().rev() {
            let frame = self.add_frame(node.frame);
            self.tables.nodes.push(StackNode { caller, frame });
            caller = Some(NodeId(self.ids.nodes.add(id.0)));
        }
        caller
    }

    fn add_frame(&mut self, id: FrameId) -> FrameId {
        if let Some(known) = self.ids.frames.get(id.0) {
            return FrameId(known);
        }
        let frame = match self.snapshot.frames.get(id.0 as usize) {
            Some(Some(Frame::Native {
                module,
                address,
                function,
            })) => match self.ids.modules.get(module) {
                Some(&module) => Frame::Native {
                    module,
                    address: *address,
                    function: *function,
                },
                // Of a process that is not in the trace: no span leads here.
                None => Frame::Unmapped(wcprof_types::Avma(address.0)),
            },
            Some(Some(other)) => other.clone(),
            _ => Frame::Unmapped(wcprof_types::Avma(0)),
        };
        self.tables.frames.push(frame);
        FrameId(self.ids.frames.add(id.0))
    }

    fn add_wait(&mut self, wait: Option<WaitId>) -> Option<WaitId> {
        let id = wait?.0;
        if let Some(known) = self.ids.waits.get(id) {
            return Some(WaitId(known));
        }
        let value = self.snapshot.waits.get(id as usize)?.clone()?;
        self.tables.waits.push(value);
        Some(WaitId(self.ids.waits.add(id)))
    }

    /// Looks at locks, of which the last was after the cut.
    fn add_locks(&mut self) {
        let (snapshot, from) = (self.snapshot, self.from);
        for chunk in &snapshot.chunks {
            let facts = &chunk.facts;
            self.tables.locks.n_skipped += facts.n_skipped;
            for look in facts.looks.iter().filter(|l| l.until > from) {
                let Some(process) = self.process(look.process) else {
                    continue;
                };
                let mut owners = Vec::with_capacity(look.owners.len());
                for owner in &look.owners {
                    if let Some(thread) = self.ids.threads.get(owner.thread.0) {
                        owners.push(LockOwner {
                            thread: ThreadId(thread),
                            stack: self.add_stack(owner.stack),
                            wait: self.add_wait(owner.wait),
                            ..*owner
                        });
                    }
                }
                self.tables.locks.looks.push(LockLook {
                    process,
                    since: self.since(look.since),
                    until: self.since(look.until),
                    owners,
                    ..look.clone()
                });
            }
            for (thread, tick) in facts.moved.iter().filter(|(_, tick)| *tick > from) {
                if let Some(thread) = self.ids.threads.get(thread.0) {
                    let moved = (ThreadId(thread), self.since(*tick));
                    self.tables.locks.moved.push(moved);
                }
            }
        }
    }
}

/// Whether something of the thread may be after the cut.
fn is_in(known: &RingThread, from: TimeNs) -> bool {
    known.thread.end > from || !known.ended
}

/// The weight of a span that lies after a moment.
fn part(span: &Span, from: TimeNs) -> Option<u64> {
    if span.end <= from {
        return None;
    }
    let length = span.end.0 - span.start.0;
    match span.end.0 - span.start.0.max(from.0) {
        after if after == length => Some(span.weight),
        after => Some(scale(span.weight, after, length)),
    }
}

fn scale(n: u64, part: u64, whole: u64) -> u64 {
    (u128::from(n) * u128::from(part) / u128::from(whole.max(1))) as u64
}

fn empty_tables(snapshot: &Snapshot, from: TimeNs) -> Tables {
    let mut header = snapshot.header.clone();
    header.started_unix_ns = header.started_unix_ns.saturating_add(from.0);
    let memory = snapshot.memory;
    if memory.n_shortened > 0 {
        header.notes.push(format!(
            "less time was kept than asked for, since the {} MB for it were used up",
            memory.max_bytes >> 20
        ));
    }
    Tables {
        stats: stats_since(snapshot, from),
        setups: snapshot.setups.clone(),
        ..Tables::new(header)
    }
}

/// The counts since the cut. Between two chunks they are taken to grow evenly.
fn stats_since(snapshot: &Snapshot, from: TimeNs) -> Stats {
    let now = &snapshot.stats;
    let befores = snapshot.chunks.iter().map(|chunk| &chunk.facts.before);
    let mut last = None;
    let mut next = now;
    for before in befores {
        if before.duration <= from {
            last = Some(before);
        } else {
            next = before;
            break;
        }
    }
    let zero = Stats::default();
    let last = last.unwrap_or(&zero);
    let step = next.duration.0.saturating_sub(last.duration.0);
    let into = from.0.saturating_sub(last.duration.0).min(step);
    let since = |of: &dyn Fn(&Stats) -> u64| {
        let grown = of(next).saturating_sub(of(last));
        let at_cut = of(last).saturating_add(scale(grown, into, step));
        of(now).saturating_sub(at_cut)
    };
    Stats {
        duration: TimeNs(now.duration.0.saturating_sub(from.0)),
        n_ticks: since(&|s| s.n_ticks),
        n_late: since(&|s| s.n_late),
        n_missed: since(&|s| s.n_missed),
        n_observations: since(&|s| s.n_observations),
        n_torn: since(&|s| s.n_torn),
        n_timer_samples: since(&|s| s.n_timer_samples),
        n_lost: since(&|s| s.n_lost),
        n_dropped_batches: since(&|s| s.n_dropped_batches),
        ends: now
            .ends
            .keys()
            .map(|&end| (end, since(&|s| s.ends.get(&end).copied().unwrap_or(0))))
            .filter(|(_, n)| *n > 0)
            .collect(),
        own_cpu_ns: since(&|s| s.own_cpu_ns),
        own_rss_bytes: now.own_rss_bytes,
        rate_changes: now
            .rate_changes
            .iter()
            .filter(|(time, _)| *time > from)
            .map(|(time, rate)| (TimeNs(time.0 - from.0), *rate))
            .collect(),
        end_reason: now.end_reason.clone(),
        complete: now.complete,
    }
}
