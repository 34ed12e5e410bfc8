//! A snapshot to a trace: tables of what its spans refer to, numbered anew, and weights that add up.
//!
//! A span that begins before the cut gives the part of its weight that lies after it. That is exact
//! for all of a thread's time together only where its spans do not overlap; what the thread's sum is
//! then off is taken from, or given to, those of its spans that the cut goes through. So the weights
//! of each thread add up to the time it was observed after the cut.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash};
use std::io::Write;

use foldhash::fast::RandomState as FastState;
use indexmap::IndexSet;
use wcprof_types::{Avma, CounterValue, TimeNs};

use super::counts::{scale, stats_since};
use super::snapshot::Snapshot;
use super::tables::RingThread;
use crate::error::TraceError;
use crate::model::{
    AccountsReading, CounterReading, Frame, FrameId, LockLook, LockOwner, Module, ModuleId, NodeId,
    ProcessEnd, ProcessId, Span, Stack, StackId, StackNode, Stats, Tables, Thread, ThreadId,
    WaitId,
};
use crate::sink::TraceSink;
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

/// Ids of the ring, each at the place of its id in the trace: in the order of first use.
#[derive(Debug, Default)]
struct Ids {
    processes: IndexSet<ProcessId>,
    modules: IndexSet<ModuleId>,
    threads: IndexSet<ThreadId, FastState>,
    frames: IndexSet<FrameId, FastState>,
    nodes: IndexSet<NodeId, FastState>,
    stacks: IndexSet<StackId, FastState>,
    waits: IndexSet<WaitId, FastState>,
}

/// The id in the trace of one of the ring.
fn new_id<T: Hash + Eq, S: BuildHasher>(ids: &IndexSet<T, S>, id: &T) -> Option<u32> {
    Some(ids.get_index_of(id)? as u32)
}

/// The same, added if it is new.
fn add_id<T: Hash + Eq, S: BuildHasher>(ids: &mut IndexSet<T, S>, id: T) -> u32 {
    ids.insert_full(id).0 as u32
}

impl Snapshot {
    /// The part from `from` on (or from its start) as a trace of its own, whose time 0 that is.
    ///
    /// # Errors
    /// When packed spans cannot be read, which would be a bug or broken memory.
    pub fn cut(&self, from: TimeNs) -> Result<Cut<'_>, TraceError> {
        Cut::new(self, from.max(self.start()))
    }
}

impl<'a> Cut<'a> {
    fn new(snapshot: &'a Snapshot, from: TimeNs) -> Result<Self, TraceError> {
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
        let mut add = |span: &Span| {
            if let Some(thread) = new_id(&cut.ids.threads, &span.thread)
                && let Some(weight) = part(span, from)
            {
                let sum = &mut sums[thread as usize];
                *sum = sum.saturating_add(weight);
                cut.add_stack(span.stack);
                cut.add_wait(span.wait);
            }
        };
        for chunk in &snapshot.chunks {
            chunk.for_each(|span| {
                add(&span);
                Ok(())
            })?;
        }
        snapshot.rest.iter().for_each(add);
        let threads = cut.tables.threads.iter().zip(sums);
        cut.off = threads
            .map(|(thread, sum)| match thread.tid.0 {
                // Time of threads that exited unseen: it was not observed.
                0 => 0,
                _ => (thread.end.0 - thread.start.0) as i64 - sum as i64,
            })
            .collect();
        cut.add_locks();
        cut.add_counters();
        cut.add_accounts();
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
        new_id(&self.ids.frames, &frame).map(FrameId)
    }

    /// What a process of the ring is in this trace.
    pub fn process(&self, process: ProcessId) -> Option<ProcessId> {
        new_id(&self.ids.processes, &process).map(ProcessId)
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
        let thread = new_id(&self.ids.threads, &span.thread)?;
        let mut weight = part(span, self.from)?;
        let start = span.start.max(self.from);
        if span.start < self.from {
            let off = &mut off[thread as usize];
            let length = (span.end.0 - start.0) as i64;
            let room = (-(weight as i64), (length - weight as i64).max(0));
            let taken = (*off).clamp(room.0, room.1);
            *off -= taken;
            weight = weight.saturating_add_signed(taken);
        }
        let Ids { waits, stacks, .. } = &self.ids;
        Some(Span {
            thread: ThreadId(thread),
            start: self.since(start),
            end: self.since(span.end),
            weight,
            wait: span.wait.and_then(|id| new_id(waits, &id)).map(WaitId),
            stack: span.stack.and_then(|id| new_id(stacks, &id)).map(StackId),
            ..*span
        })
    }

    fn since(&self, time: TimeNs) -> TimeNs {
        TimeNs(time.0.saturating_sub(self.from.0))
    }

    /// Processes that live, or of which a thread is in the trace; with their modules.
    fn add_processes(&mut self) {
        let ring = &self.snapshot.tables;
        let threads = ring.threads.iter().flatten();
        let in_trace = threads.filter(|t| is_in(t, self.from));
        let of_threads: BTreeSet<ProcessId> = in_trace.map(|t| t.thread.process).collect();
        for (&id, known) in &ring.processes {
            let over = known.end.as_ref().is_some_and(|e| e.time <= self.from);
            if over && !of_threads.contains(&id) {
                continue;
            }
            let new = ProcessId(add_id(&mut self.ids.processes, id));
            self.tables.processes.push(known.process.clone());
            if let Some(n) = known.n_folded {
                self.tables.origins.folded.insert(new, n);
            }
            if let Some(end) = &known.end {
                let end = ProcessEnd {
                    time: self.since(end.time),
                    ..end.clone()
                };
                self.tables.origins.process_ends.insert(new, end);
            }
        }
        for (id, module) in ring.modules.iter() {
            if let Some(process) = self.process(module.process) {
                add_id(&mut self.ids.modules, id);
                self.tables.modules.push(Module {
                    process,
                    ..module.clone()
                });
            }
        }
    }

    fn add_threads(&mut self) {
        let slots = self.snapshot.tables.threads.iter();
        for (id, known) in (0..).map(ThreadId).zip(slots) {
            let Some(known) = known.as_ref().filter(|t| is_in(t, self.from)) else {
                continue;
            };
            let Some(process) = self.process(known.thread.process) else {
                continue;
            };
            let new = ThreadId(add_id(&mut self.ids.threads, id));
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
        let id = stack?;
        if let Some(known) = new_id(&self.ids.stacks, &id) {
            return Some(StackId(known));
        }
        let value = *self.snapshot.tables.stacks.get(id.0)?;
        let leaf = self.add_nodes(value.leaf);
        self.tables.stacks.push(Stack { leaf, ..value });
        Some(StackId(add_id(&mut self.ids.stacks, id)))
    }

    /// Root first, so that a caller has a smaller id.
    fn add_nodes(&mut self, leaf: Option<NodeId>) -> Option<NodeId> {
        let mut new = Vec::new();
        let mut next = leaf;
        let mut caller = None;
        while let Some(id) = next {
            if let Some(known) = new_id(&self.ids.nodes, &id) {
                caller = Some(NodeId(known));
                break;
            }
            let Some(node) = self.snapshot.tables.nodes.get(id.0) else {
                break;
            };
            new.push((id, node.frame));
            next = node.caller;
        }
        for (id, frame) in new.into_iter().rev() {
            let frame = self.add_frame(frame);
            self.tables.nodes.push(StackNode { caller, frame });
            caller = Some(NodeId(add_id(&mut self.ids.nodes, id)));
        }
        caller
    }

    fn add_frame(&mut self, id: FrameId) -> FrameId {
        if let Some(known) = new_id(&self.ids.frames, &id) {
            return FrameId(known);
        }
        let known = self.snapshot.tables.frames.get(id.0);
        let mut frame = known.cloned().unwrap_or_default();
        if let Frame::Native {
            module, address, ..
        } = &mut frame
        {
            match new_id(&self.ids.modules, module) {
                Some(new) => *module = ModuleId(new),
                // Of a process that is not in the trace: no span leads here.
                None => frame = Frame::Unmapped(Avma(address.0)),
            }
        }
        self.tables.frames.push(frame);
        FrameId(add_id(&mut self.ids.frames, id))
    }

    fn add_wait(&mut self, wait: Option<WaitId>) -> Option<WaitId> {
        let id = wait?;
        if let Some(known) = new_id(&self.ids.waits, &id) {
            return Some(WaitId(known));
        }
        let value = self.snapshot.tables.waits.get(id.0)?.clone();
        self.tables.waits.push(value);
        Some(WaitId(add_id(&mut self.ids.waits, id)))
    }

    /// Readings of counters after the cut; and at the cut what lies between the readings around it.
    fn add_counters(&mut self) {
        let (snapshot, from) = (self.snapshot, self.from);
        let mut before: BTreeMap<ProcessId, &CounterReading> = BTreeMap::new();
        let all = snapshot.chunks.iter();
        for reading in all.flat_map(|chunk| &chunk.facts.readings) {
            if reading.time < from {
                before.insert(reading.process, reading);
                continue;
            }
            let Some(process) = self.process(reading.process) else {
                continue;
            };
            let earlier = before.remove(&reading.process);
            let at_cut = earlier.map(|earlier| counted_at(from, earlier, reading));
            for reading in at_cut.into_iter().chain([reading.clone()]) {
                let time = self.since(reading.time);
                self.tables.origins.counters.readings.push(CounterReading {
                    process,
                    time,
                    ..reading
                });
            }
        }
        let names = snapshot.tables.counters.iter().cloned();
        self.tables.origins.counters.names = names.collect();
    }

    /// Readings of the kernel's accounts after the cut.
    fn add_accounts(&mut self) {
        let all = self.snapshot.accounts();
        let after = all.filter(|reading| reading.time >= self.from);
        let after = after.map(|reading| AccountsReading {
            time: self.since(reading.time),
            ..reading.clone()
        });
        self.tables.origins.accounts = after.collect();
    }

    /// Looks at locks, of which the last was after the cut.
    fn add_locks(&mut self) {
        let (snapshot, from) = (self.snapshot, self.from);
        for facts in snapshot.chunks.iter().map(|chunk| &chunk.facts) {
            self.tables.locks.n_skipped += facts.n_skipped;
            for look in facts.looks.iter().filter(|l| l.until > from) {
                let Some(process) = self.process(look.process) else {
                    continue;
                };
                let owners = look.owners.iter().filter_map(|owner| {
                    Some(LockOwner {
                        thread: ThreadId(new_id(&self.ids.threads, &owner.thread)?),
                        stack: self.add_stack(owner.stack),
                        wait: self.add_wait(owner.wait),
                        ..*owner
                    })
                });
                let look = LockLook {
                    process,
                    owners: owners.collect(),
                    since: self.since(look.since),
                    until: self.since(look.until),
                    ..look.clone()
                };
                self.tables.locks.looks.push(look);
            }
            for (thread, tick) in facts.moved.iter().filter(|(_, tick)| *tick > from) {
                if let Some(thread) = new_id(&self.ids.threads, thread) {
                    let moved = (ThreadId(thread), self.since(*tick));
                    self.tables.locks.moved.push(moved);
                }
            }
        }
    }
}

/// What a process had counted at a time between two readings, if its counters grew evenly.
fn counted_at(time: TimeNs, before: &CounterReading, after: &CounterReading) -> CounterReading {
    let (part, whole) = (time.0 - before.time.0, after.time.0 - before.time.0);
    let earlier: BTreeMap<_, _> = before.values.iter().copied().collect();
    let values = after.values.iter().map(|(id, value)| {
        let earlier = earlier.get(id).copied().unwrap_or_default();
        let grown = value.since(earlier);
        let value = earlier.plus(CounterValue {
            count: scale(grown.count, part, whole),
            time_ns: scale(grown.time_ns, part, whole),
        });
        (*id, value)
    });
    CounterReading {
        process: after.process,
        time,
        values: values.collect(),
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

fn empty_tables(snapshot: &Snapshot, from: TimeNs) -> Tables {
    let mut header = snapshot.header.clone();
    header.started_unix_ns = header.started_unix_ns.saturating_add(from.0);
    let memory = snapshot.memory;
    if memory.n_shortened > 0 {
        header.notes.push(format!(
            "less time was kept than asked for, since its memory ({} MB) or a table was full",
            memory.max_bytes >> 20
        ));
    }
    let mut tables = Tables {
        stats: stats_since(snapshot, from),
        ..Tables::new(header)
    };
    tables.origins.setups.clone_from(&snapshot.setups);
    tables
}
