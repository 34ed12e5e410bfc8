//! A recording to the ring that keeps its most recent time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState as FastState;
use wcprof_types::{CounterName, StackEnd, Tid, TimeNs, Wait};
use zstd::bulk::Compressor;

use super::chunk::{Chunk, OpenChunk};
use super::memory::{RingMemory, RingOptions};
use super::snapshot::Snapshot;
use super::table::IdSet;
use super::tables::{RingTables, add_place};
use crate::error::TraceError;
use crate::format::wire::within;
use crate::limits;
use crate::model::{
    AccountsReading, CounterId, CounterReading, Frame, FrameId, Header, LockLook, Module, ModuleId,
    NodeId, Process, ProcessEnd, ProcessId, Span, Stack, StackId, StackNode, Stats, Thread,
    ThreadId, WaitId,
};
use crate::sink::{Room, TraceSink};

/// Uncompressed bytes of spans after which a chunk is closed without being asked.
const CHUNK_BYTES: usize = 2 << 20;
const COMPRESSION_LEVEL: i32 = 1;
/// Tables smaller than this are not worth a sweep.
const SMALL_TABLES: usize = 1 << 20;

/// The most recent time of a recording.
pub struct Ring {
    options: RingOptions,
    header: Header,
    setups: Vec<String>,
    pub(super) tables: RingTables,
    pub(super) chunks: VecDeque<Arc<Chunk>>,
    /// In how many of them a thread is.
    n_chunks_of: HashMap<u32, u32, FastState>,
    open: OpenChunk,
    zstd: Compressor<'static>,
    stats: Stats,
    /// Bytes of the tables after the last sweep.
    swept: usize,
    pub(super) n_shortened: u64,
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
            tables: RingTables::default(),
            chunks: VecDeque::new(),
            n_chunks_of: HashMap::default(),
            open: OpenChunk::default(),
            zstd: Compressor::new(COMPRESSION_LEVEL).map_err(TraceError::Write)?,
            stats: Stats::default(),
            swept: 0,
            n_shortened: 0,
        })
    }

    /// Bytes of memory that spans and tables take, about.
    pub fn bytes(&self) -> usize {
        let chunks = self.chunks.iter().map(|chunk| chunk.bytes());
        chunks.sum::<usize>() + self.tables.bytes()
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
    /// `rest` are spans of what was observed and is not accounted yet; they are not kept.
    pub fn snapshot(&self, rest: Vec<Span>) -> Snapshot {
        Snapshot {
            header: self.header.clone(),
            setups: self.setups.clone(),
            tables: self.tables.values(),
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

    fn close_chunk(&mut self) -> Result<(), TraceError> {
        let chunk = self.open.close(&mut self.zstd, &self.stats)?;
        for &thread in &chunk.facts.threads {
            *self.n_chunks_of.entry(thread).or_default() += 1;
        }
        self.chunks.push_back(chunk);
        let from = self.wanted_from();
        while self.chunks.front().is_some_and(|c| c.facts.end <= from) {
            self.drop_chunk();
        }
        Ok(())
    }

    /// Forgets the oldest chunk.
    fn drop_chunk(&mut self) {
        let Some(chunk) = self.chunks.pop_front() else {
            return;
        };
        for thread in &chunk.facts.threads {
            if let Some(n) = self.n_chunks_of.get_mut(thread) {
                *n -= 1;
                if *n == 0 {
                    self.n_chunks_of.remove(thread);
                }
            }
        }
    }

    /// Forgets what has ended before all that is kept.
    fn drop_ended(&mut self) {
        let n_chunks_of = &self.n_chunks_of;
        let start = self.start();
        self.tables
            .drop_ended(start, |thread| n_chunks_of.contains_key(&thread));
    }

    /// Forgets what neither chunks nor `held` refer to.
    fn drop_unused(&mut self, held: &[(Option<StackId>, Option<WaitId>)]) {
        let (mut stacks, mut waits) = (IdSet::default(), IdSet::default());
        for chunk in &self.chunks {
            stacks.extend(&chunk.facts.stacks);
            waits.extend(&chunk.facts.waits);
        }
        for &place in held {
            add_place(place, &mut stacks, &mut waits);
        }
        self.tables.retain(&stacks, &waits);
        self.swept = self.tables.bytes();
    }
}

impl Ring {
    /// Whether the oldest part must go.
    fn is_full(&self) -> bool {
        let Room { stacks, waits } = self.room();
        self.bytes() > self.options.max_bytes || !(stacks && waits)
    }
}

impl TraceSink for Ring {
    fn set_start(&mut self, unix_ns: u64) {
        self.header.started_unix_ns = unix_ns;
    }

    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        self.tables.add_process(process)
    }

    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError> {
        self.tables.end_process(process, end);
        Ok(())
    }

    fn process_folded(&mut self, process: ProcessId, n: u32) -> Result<(), TraceError> {
        self.tables.fold_process(process, n);
        Ok(())
    }

    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        self.tables.add_module(module)
    }

    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError> {
        let thread = Thread::new(process, tid, seen, name.to_owned());
        self.tables.add_thread(thread)
    }

    fn thread_name(
        &mut self,
        thread: ThreadId,
        seen: TimeNs,
        name: &str,
    ) -> Result<(), TraceError> {
        let from = self.start();
        let names = &mut self.tables.thread(thread)?.thread.names;
        if names.last().is_some_and(|(_, last)| last == name) {
            return Ok(());
        }
        names.push((seen, name.to_owned()));
        // The name that held when what is kept begins is the first of interest; and a thread that
        // renames itself all the time is not followed in all of it.
        let n_over = names.iter().skip(1).take_while(|n| n.0 <= from).count();
        let n_over = n_over.max(names.len().saturating_sub(limits::MAX_THREAD_NAMES));
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
        let known = &mut self.tables.thread(thread)?.thread;
        (known.start, known.end, known.n_ticks) = (start, end.max(start), n_ticks);
        Ok(())
    }

    fn known_wait(&self, wait: &Wait) -> Option<WaitId> {
        self.tables.waits.known(wait).map(WaitId)
    }

    fn room(&self) -> Room {
        let RingTables {
            frames,
            nodes,
            stacks,
            waits,
            ..
        } = &self.tables;
        Room {
            stacks: frames.has_room() && nodes.has_room() && stacks.has_room(),
            waits: waits.has_room(),
        }
    }

    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError> {
        self.tables.frames.intern(frame).map(FrameId)
    }

    fn intern_node(
        &mut self,
        caller: Option<NodeId>,
        frame: FrameId,
    ) -> Result<NodeId, TraceError> {
        let node = StackNode { caller, frame };
        self.tables.nodes.intern(node).map(NodeId)
    }

    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError> {
        self.tables.stacks.intern(Stack { leaf, end }).map(StackId)
    }

    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError> {
        self.tables.waits.intern(wait).map(WaitId)
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
        self.tables.thread(thread)?.own_tid = Some(own);
        Ok(())
    }

    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError> {
        self.open.moved(thread, tick);
        Ok(())
    }

    fn intern_counter(&mut self, name: &CounterName) -> Result<CounterId, TraceError> {
        let names = &mut self.tables.counters;
        let id = match names.get_index_of(name) {
            Some(id) => id,
            None => names.insert_full(name.clone()).0,
        };
        within("counters", id as u64 + 1, limits::MAX_COUNTERS)?;
        // The limit is far below 2^32.
        Ok(CounterId(id as u32))
    }

    fn counters(&mut self, reading: &CounterReading) -> Result<(), TraceError> {
        self.open.reading(reading);
        Ok(())
    }

    fn accounts(&mut self, reading: AccountsReading) -> Result<(), TraceError> {
        self.open.accounts(reading);
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

    /// Closes a chunk.
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
        if let Ok(thread) = self.tables.thread(thread) {
            thread.ended = true;
        }
    }

    fn module_unmapped(&mut self, module: ModuleId) {
        self.tables.unmapped.insert(module);
    }

    fn sweep_due(&self) -> bool {
        self.tables.bytes() > (2 * self.swept).max(SMALL_TABLES) || self.is_full()
    }

    fn sweep(&mut self, held: &[(Option<StackId>, Option<WaitId>)]) {
        self.drop_unused(held);
        while self.is_full() && self.chunks.len() > 1 {
            // A tenth of the time at once, so that this is not done again at the next flush.
            for _ in 0..self.chunks.len().div_ceil(10) {
                self.drop_chunk();
            }
            self.n_shortened += 1;
            self.drop_ended();
            self.drop_unused(held);
        }
    }

    fn holds_frame(&self, frame: FrameId) -> bool {
        self.tables.frames.get(frame.0).is_some()
    }

    fn holds_process(&self, process: ProcessId) -> bool {
        self.tables.processes.contains_key(&process)
    }
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
