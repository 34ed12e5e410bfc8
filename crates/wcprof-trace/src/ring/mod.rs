//! The last time of a recording, in memory: spans in packed chunks of about a second, tables of what
//! these refer to, and nothing else.
//!
//! [`Ring`] takes the place of a [`TraceWriter`](crate::TraceWriter) while a recording runs. What is
//! older than it keeps is dropped, and so are interned stacks, frames and waits, ended threads and
//! ended processes that nothing in it refers to any more; their ids are then used again. A
//! [`Snapshot`] is what it holds at a moment, apart from it; a [`Cut`] of it is an ordinary trace.

mod chunk;
mod cut;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use wcprof_types::{StackEnd, Tid, TimeNs, Wait};
use zstd::bulk::Compressor;

pub use cut::Cut;
pub use snapshot::Snapshot;

use crate::error::{Malformed, TraceError};
use crate::limits;
use crate::model::{
    Frame, FrameId, Header, LockLook, Module, ModuleId, NodeId, Process, ProcessEnd, ProcessId,
    Span, Stack, StackId, StackNode, Stats, Thread, ThreadId, WaitId,
};
use crate::sink::TraceSink;
use chunk::{Chunk, OpenChunk};
use table::{Marks, Table};

/// Uncompressed bytes of spans after which a chunk is closed without being asked.
const CHUNK_BYTES: usize = 2 << 20;
const COMPRESSION_LEVEL: i32 = 1;
/// Tables smaller than this are not worth a sweep.
const SMALL_TABLES: usize = 1 << 20;

/// How much a ring holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RingOptions {
    /// The time that is kept.
    pub keep: Duration,
    /// Most memory of spans and tables, bytes. Beyond it the time is shorter.
    pub max_bytes: usize,
}

/// The memory of a ring at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RingMemory {
    /// Bytes that spans and tables take, about.
    pub bytes: usize,
    /// [`RingOptions::max_bytes`].
    pub max_bytes: usize,
    /// How often a tenth of the kept time was dropped before its time, since memory was used up.
    pub n_shortened: u64,
}

/// The last time of a recording.
pub struct Ring {
    options: RingOptions,
    header: Header,
    setups: Vec<String>,
    processes: BTreeMap<ProcessId, RingProcess>,
    next_process: u32,
    modules: BTreeMap<ModuleId, Module>,
    next_module: u32,
    threads: Vec<Option<RingThread>>,
    free_threads: Vec<u32>,
    frames: Table<Frame>,
    nodes: Table<StackNode>,
    stacks: Table<Stack>,
    waits: Table<Wait>,
    /// Bytes of names in `frames`, and of paths in `waits`.
    frames_heap: usize,
    waits_heap: usize,
    chunks: VecDeque<Arc<Chunk>>,
    chunk_bytes: usize,
    open: OpenChunk,
    zstd: Compressor<'static>,
    stats: Stats,
    /// Bytes of the tables after the last sweep.
    swept: usize,
    n_shortened: u64,
}

/// A process, as long as it lives or something in the ring is of it.
#[derive(Clone, Debug)]
struct RingProcess {
    process: Process,
    end: Option<ProcessEnd>,
}

/// A thread, as long as it lives or something in the ring is of it.
#[derive(Clone, Debug)]
struct RingThread {
    thread: Thread,
    own_tid: Option<Tid>,
    ended: bool,
}

impl Ring {
    /// An empty one. `setups` say how processes are set up, as
    /// [`TraceWriter::add_setup`](crate::TraceWriter::add_setup) takes them.
    pub fn new(
        options: RingOptions,
        header: Header,
        setups: Vec<String>,
    ) -> Result<Self, TraceError> {
        Ok(Self {
            options,
            header,
            setups,
            processes: BTreeMap::new(),
            next_process: 0,
            modules: BTreeMap::new(),
            next_module: 0,
            threads: Vec::new(),
            free_threads: Vec::new(),
            frames: Table::default(),
            nodes: Table::default(),
            stacks: Table::default(),
            waits: Table::default(),
            frames_heap: 0,
            waits_heap: 0,
            chunks: VecDeque::new(),
            chunk_bytes: 0,
            open: OpenChunk::default(),
            zstd: Compressor::new(COMPRESSION_LEVEL).map_err(TraceError::Write)?,
            stats: Stats::default(),
            swept: 0,
            n_shortened: 0,
        })
    }

    /// Bytes of memory that spans and tables take, about.
    pub fn bytes(&self) -> usize {
        self.chunk_bytes + self.table_bytes()
    }

    /// Its memory now.
    pub fn memory(&self) -> RingMemory {
        RingMemory {
            bytes: self.bytes(),
            max_bytes: self.options.max_bytes,
            n_shortened: self.n_shortened,
        }
    }

    /// The time that what it holds begins at: at most what is kept before the last flush.
    pub fn start(&self) -> TimeNs {
        let oldest = self.chunks.front().map(|chunk| chunk.facts.before.duration);
        self.wanted_from()
            .max(oldest.unwrap_or(self.stats.duration))
    }

    /// What it holds. Flush first: what came since is not in it.
    ///
    /// `rest` are spans of what was observed and not accounted yet; they are not kept.
    pub fn snapshot(&self, rest: Vec<Span>) -> Snapshot {
        Snapshot {
            header: self.header.clone(),
            setups: self.setups.clone(),
            processes: self.processes.clone(),
            modules: self.modules.clone(),
            threads: self.threads.clone(),
            frames: self.frames.values().to_vec(),
            nodes: self.nodes.values().to_vec(),
            stacks: self.stacks.values().to_vec(),
            waits: self.waits.values().to_vec(),
            chunks: self.chunks.iter().cloned().collect(),
            start: self.start(),
            rest,
            stats: self.stats.clone(),
            memory: self.memory(),
        }
    }

    fn wanted_from(&self) -> TimeNs {
        let keep = u64::try_from(self.options.keep.as_nanos()).unwrap_or(u64::MAX);
        TimeNs(self.stats.duration.0.saturating_sub(keep))
    }

    fn table_bytes(&self) -> usize {
        let text: usize = self.processes.values().map(RingProcess::bytes).sum();
        let modules = self.modules.values();
        let modules: usize = modules.map(|m| m.path.len() + size_of::<Module>()).sum();
        self.frames.bytes(self.frames_heap)
            + self.nodes.bytes(0)
            + self.stacks.bytes(0)
            + self.waits.bytes(self.waits_heap)
            + self.threads.capacity() * (size_of::<Option<RingThread>>() + 64)
            + text
            + modules
    }

    fn close_chunk(&mut self) -> Result<(), TraceError> {
        let chunk = self.open.close(&mut self.zstd, &self.stats)?;
        self.chunk_bytes += chunk.bytes();
        self.chunks.push_back(chunk);
        let from = self.wanted_from();
        while self.chunks.front().is_some_and(|c| c.facts.end <= from) {
            self.drop_oldest();
        }
        Ok(())
    }

    fn drop_oldest(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.chunk_bytes = self.chunk_bytes.saturating_sub(chunk.bytes());
        }
    }

    /// Forgets what has ended before all that is kept.
    fn drop_ended(&mut self) {
        let from = self.start();
        let mut used = Marks::default();
        for chunk in &self.chunks {
            chunk.facts.threads.iter().for_each(|&id| {
                used.mark(id);
            });
        }
        let mut populated = std::collections::BTreeSet::new();
        for (id, slot) in (0..).zip(&mut self.threads) {
            let over = slot.as_ref().is_some_and(|t| t.ended && !used.has(id));
            if over {
                *slot = None;
                self.free_threads.push(id);
            }
            populated.extend(slot.as_ref().map(|t| t.thread.process));
        }
        let n = self.processes.len();
        self.processes.retain(|id, process| {
            let ended = process.end.as_ref().is_some_and(|end| end.time <= from);
            !ended || populated.contains(id)
        });
        if self.processes.len() < n {
            let processes = &self.processes;
            self.modules
                .retain(|_, module| processes.contains_key(&module.process));
        }
    }

    /// Marks what chunks and `held` refer to, and forgets the rest of the tables.
    fn drop_unused(&mut self, held: &[(Option<StackId>, Option<WaitId>)]) {
        let (mut stacks, mut waits) = (Marks::default(), Marks::default());
        for chunk in &self.chunks {
            for (marks, ids) in [
                (&mut stacks, &chunk.facts.stacks),
                (&mut waits, &chunk.facts.waits),
            ] {
                ids.iter().for_each(|&id| {
                    marks.mark(id);
                });
            }
        }
        for (stack, wait) in held {
            stack.iter().for_each(|id| {
                stacks.mark(id.0);
            });
            wait.iter().for_each(|id| {
                waits.mark(id.0);
            });
        }
        let (mut nodes, mut frames) = (Marks::default(), Marks::default());
        for id in stacks.ids() {
            let mut next = self.stacks.get(id).and_then(|stack| stack.leaf);
            while let Some(node) = next
                && nodes.mark(node.0)
                && let Some(value) = self.nodes.get(node.0)
            {
                frames.mark(value.frame.0);
                next = value.caller;
            }
        }
        self.stacks.keep(&stacks);
        self.waits.keep(&waits);
        self.nodes.keep(&nodes);
        self.frames.keep(&frames);
        self.frames_heap = heap(self.frames.values(), frame_heap);
        self.waits_heap = heap(self.waits.values(), wait_heap);
        self.swept = self.table_bytes();
    }

    fn thread(&mut self, id: ThreadId) -> Result<&mut RingThread, TraceError> {
        let len = self.threads.len() as u64;
        let known = self.threads.get_mut(id.0 as usize).and_then(Option::as_mut);
        known.ok_or(TraceError::Invalid(Malformed::UnknownId {
            what: "thread",
            id: id.0.into(),
            len,
        }))
    }
}

impl RingProcess {
    fn bytes(&self) -> usize {
        let Process {
            comm,
            cmdline,
            cgroup,
            ..
        } = &self.process;
        size_of::<Self>()
            + comm.len()
            + cgroup.len()
            + cmdline.iter().map(|arg| arg.len() + 24).sum::<usize>()
    }
}

fn frame_heap(frame: &Frame) -> usize {
    match frame {
        Frame::Kernel(name) => name.len(),
        Frame::Native { .. } | Frame::Unmapped(_) | Frame::KernelCode(_) => 0,
    }
}

fn wait_heap(wait: &Wait) -> usize {
    wait.kernel.len() + wait.fd.as_ref().map_or(0, |fd| fd.path.len())
}

fn heap<T>(values: &[Option<T>], of: impl Fn(&T) -> usize) -> usize {
    values.iter().flatten().map(of).sum()
}

impl TraceSink for Ring {
    fn begins_at(&mut self, unix_ns: u64) {
        self.header.started_unix_ns = unix_ns;
    }

    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        let id = ProcessId(self.next_process);
        self.next_process = next(self.next_process)?;
        self.processes
            .insert(id, RingProcess { process, end: None });
        Ok(id)
    }

    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError> {
        if let Some(known) = self.processes.get_mut(&process) {
            known.end = Some(end.clone());
        }
        let threads = self.threads.iter_mut().flatten();
        for thread in threads.filter(|t| t.thread.process == process) {
            thread.ended = true;
        }
        Ok(())
    }

    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        let id = ModuleId(self.next_module);
        self.next_module = next(self.next_module)?;
        self.modules.insert(id, module);
        Ok(id)
    }

    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError> {
        let thread = RingThread {
            thread: Thread {
                process,
                tid,
                names: vec![(seen, name.to_owned())],
                start: seen,
                end: seen,
                n_ticks: 0,
            },
            own_tid: None,
            ended: false,
        };
        let id = match self.free_threads.pop() {
            Some(id) => id,
            None => {
                self.threads.push(None);
                u32::try_from(self.threads.len() - 1)
                    .map_err(|_| TraceError::Invalid(Malformed::NumberTooLarge))?
            }
        };
        if let Some(slot) = self.threads.get_mut(id as usize) {
            *slot = Some(thread);
        }
        Ok(ThreadId(id))
    }

    fn thread_name(
        &mut self,
        thread: ThreadId,
        seen: TimeNs,
        name: &str,
    ) -> Result<(), TraceError> {
        let from = self.start();
        let names = &mut self.thread(thread)?.thread.names;
        if names.last().is_some_and(|(_, last)| last == name) {
            return Ok(());
        }
        names.push((seen, name.to_owned()));
        // The name that held when what is kept begins is the first of interest; and a thread that
        // renames itself all the time is not followed in all of it.
        let n_over = names.iter().skip(1).take_while(|n| n.0 <= from).count();
        let n_over = n_over.max(names.len().saturating_sub(limits::MAX_LIST));
        names.drain(..n_over);
        Ok(())
    }

    fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError> {
        let known = &mut self.thread(thread)?.thread;
        (known.start, known.end, known.n_ticks) = (start, end.max(start), n_ticks);
        Ok(())
    }

    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError> {
        let (n, heap) = (self.frames.values().len(), frame_heap(&frame));
        let id = self.frames.intern(frame, "frames", limits::MAX_FRAMES)?;
        if self.frames.values().len() > n {
            self.frames_heap += heap;
        }
        Ok(FrameId(id))
    }

    fn intern_node(
        &mut self,
        caller: Option<NodeId>,
        frame: FrameId,
    ) -> Result<NodeId, TraceError> {
        let node = StackNode { caller, frame };
        let id = self.nodes.intern(node, "stack nodes", limits::MAX_NODES)?;
        Ok(NodeId(id))
    }

    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError> {
        let stack = Stack { leaf, end };
        let id = self.stacks.intern(stack, "stacks", limits::MAX_STACKS)?;
        Ok(StackId(id))
    }

    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError> {
        let (n, heap) = (self.waits.values().len(), wait_heap(&wait));
        let id = self.waits.intern(wait, "waits", limits::MAX_WAITS)?;
        if self.waits.values().len() > n {
            self.waits_heap += heap;
        }
        Ok(WaitId(id))
    }

    fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError> {
        self.open.look(look);
        Ok(())
    }

    fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError> {
        self.open.skipped(n);
        Ok(())
    }

    fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError> {
        self.thread(thread)?.own_tid = Some(own);
        Ok(())
    }

    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError> {
        self.open.moved(thread, tick);
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), TraceError> {
        self.open.span(span);
        match self.open.len() >= CHUNK_BYTES {
            true => self.close_chunk(),
            false => Ok(()),
        }
    }

    fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError> {
        self.stats = stats.clone();
        Ok(())
    }

    /// Closes a chunk: call it about once a second.
    fn flush(&mut self) -> Result<(), TraceError> {
        self.close_chunk()?;
        self.drop_ended();
        Ok(())
    }

    fn finish(&mut self, stats: &Stats) -> Result<(), TraceError> {
        self.set_stats(stats)?;
        self.flush()
    }

    fn len_bytes(&self) -> u64 {
        self.bytes() as u64
    }

    fn thread_ended(&mut self, thread: ThreadId) {
        if let Ok(thread) = self.thread(thread) {
            thread.ended = true;
        }
    }

    fn sweep_due(&self) -> bool {
        self.table_bytes() > (2 * self.swept).max(SMALL_TABLES)
            || self.bytes() > self.options.max_bytes
    }

    fn sweep(&mut self, held: &[(Option<StackId>, Option<WaitId>)]) {
        self.drop_unused(held);
        while self.bytes() > self.options.max_bytes && self.chunks.len() > 1 {
            // A tenth of the time at once, so that this is not done again at the next flush.
            for _ in 0..self.chunks.len().div_ceil(10) {
                self.drop_oldest();
            }
            self.n_shortened += 1;
            self.drop_ended();
            self.drop_unused(held);
        }
    }

    fn holds_frame(&self, frame: FrameId) -> bool {
        self.frames.get(frame.0).is_some()
    }

    fn holds_stack(&self, stack: StackId) -> bool {
        self.stacks.get(stack.0).is_some()
    }

    fn holds_process(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }
}

fn next(id: u32) -> Result<u32, TraceError> {
    id.checked_add(1)
        .ok_or(TraceError::Invalid(Malformed::NumberTooLarge))
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("options", &self.options)
            .field("n_chunks", &self.chunks.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
