//! Turns a recording into a trace file while it runs: interns, collects, and writes a block at
//! each flush.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, Write};

use foldhash::fast::RandomState as FastState;
use wcprof_types::{CounterName, StackEnd, Tid, TimeNs, Wait};
use zstd::bulk::Compressor;

use crate::error::{Malformed, TraceError};
use crate::format::block::kind;
use crate::format::codec::{Codec, Sizes, Table, write, write_entry};
use crate::format::entries::Entry;
use crate::format::facts::Seen;
use crate::format::locks::Fact;
use crate::format::spans;
use crate::format::wire::{check_interval, checked_time, within};
use crate::format::{FileHeader, counters, facts, locks, put_section, section};
use crate::limits;
use crate::model::{
    AccountsReading, CounterId, CounterReading, Frame, FrameId, Header, LocalNames, LockLook,
    Module, ModuleId, Names, NodeId, Process, ProcessEnd, ProcessId, Source, Span, Stack, StackId,
    StackNode, Stats, SymbolTable, Thread, ThreadId, WaitId,
};
use crate::names::{pack_local_names, pack_symbols};
use crate::output::Output;
use crate::pending::Pending;
use crate::sink::{Room, TraceSink};

/// Uncompressed bytes that are collected before a block is written without being asked.
const FLUSH_BYTES: usize = 2 << 20;
/// Bytes of tables: the reader takes a block more.
const TABLE_BYTES: usize = limits::MAX_TABLE_BYTES - limits::MAX_BLOCK_BYTES;
/// Half a millisecond more a second than 1 for a busy OSD, and a fifteenth less to write.
const COMPRESSION_LEVEL: i32 = 5;

/// Writes a trace, block by block.
///
/// Everything that is added waits in memory until [`flush`](TraceSink::flush), or until 2 MiB of it
/// have come together. A block reaches the file by one `write`, so that it survives the end of
/// this process; it is not synchronized to the disk.
///
/// When a write fails (full disk), the method returns the error, the file is cut back to its last
/// whole block, and what was to be written is kept and tried again at the next call. Nothing
/// that a failed call was asked to add has been added.
pub struct TraceWriter<W: Write> {
    output: Output<W>,
    compressor: Compressor<'static>,
    pending: Pending,
    sizes: Sizes,
    /// Those before what is pending.
    packed_sizes: Sizes,
    interned: Interned,
    /// Whether values that are interned are looked up in, and added to, `interned`.
    pub(crate) remembers: bool,
    threads: Threads,
    looks: Looks,
    /// What the next reading of counters is written as the difference from.
    counters_before: counters::Before,
    /// Readings of the kernel's accounts that were written.
    n_accounts: usize,
    stats: Option<Stats>,
    finished: bool,
}

/// Looks at locks.
#[derive(Default)]
struct Looks {
    n: usize,
    /// Those that were left out since the last block.
    n_skipped: u64,
    /// What the next one is written as the difference from.
    before: locks::Before,
}

#[derive(Debug, Default)]
struct Interned {
    frames: HashMap<Frame, u32, FastState>,
    nodes: HashMap<StackNode, u32, FastState>,
    stacks: HashMap<Stack, u32, FastState>,
    waits: HashMap<Wait, u32, FastState>,
    counters: HashMap<CounterName, CounterId, FastState>,
}

/// What was noted of threads.
#[derive(Debug, Default)]
struct Threads {
    seen: Vec<Seen>,
    names: Vec<LastName>,
    /// Those whose bounds are in no block yet.
    changed: Vec<ThreadId>,
}

/// The name of a thread.
#[derive(Debug)]
struct LastName {
    name: String,
    /// Names of the thread that were written.
    n_written: usize,
    /// Since when it has this one, which is not written yet.
    unwritten: Option<TimeNs>,
}

impl TraceWriter<File> {
    /// Writes to an empty regular file. It is opened for appending, else a failed write may leave a hole.
    pub fn for_file(file: File, header: &Header) -> Result<Self, TraceError> {
        Self::with_rewind(file, header, |file, len| file.set_len(len))
    }
}

impl<W: Write> TraceWriter<W> {
    /// Writes to anything. After a failed write a partial block is left, and every later call
    /// returns [`TraceError::Broken`].
    pub fn new(sink: W, header: &Header) -> Result<Self, TraceError> {
        Self::with_rewind(sink, header, |_, _| Err(io::ErrorKind::Unsupported.into()))
    }

    pub(crate) fn with_rewind(
        sink: W,
        header: &Header,
        rewind: fn(&mut W, u64) -> io::Result<()>,
    ) -> Result<Self, TraceError> {
        let mut output = Output::new(sink, rewind, FileHeader::CURRENT.to_bytes());
        // Whether the disk is full is known before a recording begins.
        output.send()?;
        Ok(Self {
            output,
            compressor: Compressor::new(COMPRESSION_LEVEL).map_err(TraceError::Write)?,
            pending: Pending::new(header.clone()),
            sizes: Sizes::default(),
            packed_sizes: Sizes::default(),
            interned: Interned::default(),
            remembers: true,
            threads: Threads::default(),
            looks: Looks::default(),
            counters_before: counters::Before::default(),
            n_accounts: 0,
            stats: None,
            finished: false,
        })
    }

    /// Adds a recording that the trace is merged from; its processes come after those of the
    /// sources before it.
    pub fn add_source(&mut self, source: &Source) -> Result<(), TraceError> {
        self.put(section::SOURCES, |c| facts::source(c, &mut source.clone()))
    }

    /// Notes that a process was also recorded by another source than its own: the index of that.
    pub fn recorded_again(&mut self, process: ProcessId, source: u32) -> Result<(), TraceError> {
        self.put(section::RECORDED_AGAIN, |c| {
            facts::recorded_again(c, &mut (process, source))
        })
    }

    /// Adds how a process and its host are set up, as JSON of at most
    /// [`MAX_SETUP_BYTES`](limits::MAX_SETUP_BYTES). An empty one is not written.
    pub fn add_setup(&mut self, json: &str) -> Result<(), TraceError> {
        self.make_room()?;
        let n_bytes = json.len() as u64;
        within("bytes of a setup", n_bytes, limits::MAX_SETUP_BYTES)?;
        put_section(&mut self.pending.setups, section::SETUP, json.as_bytes());
        Ok(())
    }

    /// Writes names of frames, in place of names written before; also after
    /// [`finish`](TraceSink::finish).
    pub fn write_symbols(&mut self, table: &SymbolTable) -> Result<(), TraceError> {
        self.flush()?;
        let packed = pack_symbols(table, &self.sizes, &mut self.output);
        self.send_names(packed)
    }

    /// Writes names that cannot be found later; once, also after [`finish`](TraceSink::finish).
    pub fn write_local_names(&mut self, names: &LocalNames) -> Result<(), TraceError> {
        self.flush()?;
        let packed = pack_local_names(names, &self.sizes, &mut self.output);
        self.send_names(packed)
    }

    /// Writes those names that there are; once, also after [`finish`](TraceSink::finish).
    pub fn write_names(&mut self, names: &Names) -> Result<(), TraceError> {
        if let Some(symbols) = &names.symbols {
            self.write_symbols(symbols)?;
        }
        match names.local.names.frames.is_empty() {
            true => Ok(()),
            false => self.write_local_names(&names.local),
        }
    }

    fn send_names(&mut self, packed: Result<(), TraceError>) -> Result<(), TraceError> {
        let sent = packed.and_then(|()| match self.finished {
            true => self.output.send_with_index(),
            false => self.output.send(),
        });
        // Names are large and can be added later: no reason to hold the other blocks up.
        sent.inspect_err(|_| self.output.forget())
    }

    /// The sink, for instance to drop it before names are appended. What is pending is lost.
    pub fn into_inner(self) -> W {
        self.output.into_inner()
    }

    #[cfg(test)]
    pub(crate) fn sink_mut(&mut self) -> &mut W {
        self.output.sink_mut()
    }

    /// As if so many bytes of tables were in blocks.
    #[cfg(test)]
    pub(crate) fn pretend_packed(&mut self, n_bytes: usize) {
        self.pending.packed = n_bytes;
    }

    fn not_finished(&self) -> Result<(), TraceError> {
        match self.finished {
            true => Err(TraceError::Finished),
            false => Ok(()),
        }
    }

    /// Flushes when enough is pending.
    fn make_room(&mut self) -> Result<(), TraceError> {
        self.not_finished()?;
        let n_pending = self.pending.len();
        let n_bytes = self.pending.packed + n_pending;
        within("bytes of tables", n_bytes as u64, TABLE_BYTES)?;
        match n_pending >= FLUSH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Adds to a section that is no table.
    fn put(
        &mut self,
        tag: u8,
        fields: impl FnOnce(&mut Codec<'_, '_>) -> Result<(), Malformed>,
    ) -> Result<(), TraceError> {
        self.make_room()?;
        Ok(write_entry(self.pending.section(tag), &self.sizes, fields)?)
    }

    fn put_lock_fact(&mut self, fact: Fact) -> Result<(), TraceError> {
        self.make_room()?;
        let out = self.pending.section(section::LOCKS);
        Ok(locks::put(out, &self.sizes, fact, &mut self.looks.before)?)
    }

    /// Adds an entry to its table: its id.
    fn add<T: Entry>(&mut self, entry: &T) -> Result<u32, TraceError> {
        self.make_room()?;
        let (sizes, table) = (self.sizes, T::TABLE);
        table.check_len(sizes.get(table) + 1)?;
        // Limits are far below 2^32.
        let id = sizes.get(table) as u32;
        self.pending.add(table, |out| {
            write_entry(out, &sizes, |c| entry.clone().fields(c, id))
        })?;
        self.sizes.add(table);
        Ok(id)
    }

    /// The id of a value; `known` are those of its kind that have one.
    fn intern<T: Entry + Eq + Hash>(
        &mut self,
        value: T,
        known: fn(&mut Interned) -> &mut HashMap<T, u32, FastState>,
    ) -> Result<u32, TraceError> {
        if !self.remembers {
            return self.add(&value);
        }
        if let Some(&id) = known(&mut self.interned).get(&value) {
            return Ok(id);
        }
        let id = self.add(&value)?;
        known(&mut self.interned).insert(value, id);
        Ok(id)
    }

    fn put_stats(&mut self, stats: &Stats, mut is_final: bool) -> Result<(), TraceError> {
        let out = &mut self.pending.stats;
        out.clear();
        Ok(write(out, &self.sizes, |c| {
            facts::stats(c, &mut stats.clone(), &mut is_final)
        })?)
    }

    /// Adds the last names of threads that had too many.
    fn put_last_names(&mut self) -> Result<(), TraceError> {
        let out = self.pending.section(section::THREAD_NAMES);
        for (id, last) in (0..).zip(&mut self.threads.names) {
            if let Some(seen) = last.unwritten.take() {
                let mut new = (ThreadId(id), seen, last.name.clone());
                write_entry(out, &self.sizes, |c| facts::name(c, &mut new))?;
            }
        }
        Ok(())
    }

    /// Makes blocks of what is pending: one of tables, and one of spans.
    fn pack_pending(&mut self) -> Result<(), TraceError> {
        let Threads { seen, changed, .. } = &mut self.threads;
        changed.sort_unstable();
        changed.dedup();
        let out = self.pending.section(section::THREAD_FACTS);
        let mut before = Seen::default();
        for thread in changed.drain(..) {
            let mut seen = seen[thread.0 as usize];
            write_entry(out, &self.sizes, |c| facts::seen(c, &mut seen, &mut before))?;
        }
        if self.looks.n_skipped > 0 {
            let skipped = Fact::Skipped(std::mem::take(&mut self.looks.n_skipped));
            let out = self.pending.section(section::LOCKS);
            locks::put(out, &self.sizes, skipped, &mut self.looks.before)?;
        }
        self.looks.before = locks::Before::default();
        self.counters_before.restart();
        let tables = self.pending.take_sections()?;
        self.pack_tables(&tables)?;
        if let Some(times) = self.pending.spans.times() {
            let mut content = Vec::new();
            self.pending.spans.take_into(&mut content);
            let mut sections = Vec::with_capacity(content.len() + 32);
            self.sizes.put(&mut sections);
            put_section(&mut sections, section::SPANS, &content);
            self.output
                .pack(&mut self.compressor, (kind::SPANS, times), &sections)?;
        }
        Ok(())
    }

    /// Makes a block of sections that are not spans, if there are any.
    fn pack_tables(&mut self, sections: &[u8]) -> Result<(), TraceError> {
        if sections.is_empty() {
            return Ok(());
        }
        let mut block = Vec::with_capacity(sections.len() + 32);
        self.packed_sizes.put(&mut block);
        block.extend_from_slice(sections);
        self.packed_sizes = self.sizes;
        self.output
            .pack(&mut self.compressor, (kind::TABLES, (0, 0)), &block)
    }
}

impl<W: Write> TraceSink for TraceWriter<W> {
    fn set_start(&mut self, unix_ns: u64) {
        if let Some(header) = &mut self.pending.header {
            header.started_unix_ns = unix_ns;
        }
    }

    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        let id = ProcessId(self.add(&process)?);
        self.pending
            .add_strings(process.cmdline.len().min(limits::MAX_LIST));
        let texts = [
            (section::CGROUPS, process.cgroup),
            (section::BIRTHS, process.birth),
        ];
        for (tag, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.put(tag, |c| facts::of_process(c, &mut (id, text)))?;
        }
        Ok(id)
    }

    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError> {
        let mut end = (process, end.clone());
        self.put(section::PROCESS_ENDS, |c| facts::process_end(c, &mut end))
    }

    fn process_folded(&mut self, process: ProcessId, n: u32) -> Result<(), TraceError> {
        self.put(section::FOLDED, |c| facts::folded(c, &mut (process, n)))
    }

    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        self.add(&module).map(ModuleId)
    }

    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError> {
        let id = self.add(&Thread::new(process, tid, seen, name.to_owned()))?;
        self.threads.names.push(LastName {
            name: name.to_owned(),
            n_written: 1,
            unwritten: None,
        });
        let thread = ThreadId(id);
        self.threads.seen.push(Seen {
            thread,
            start: seen,
            end: seen,
            n_ticks: 0,
        });
        Ok(thread)
    }

    fn thread_name(
        &mut self,
        thread: ThreadId,
        seen: TimeNs,
        name: &str,
    ) -> Result<(), TraceError> {
        self.not_finished()?;
        self.sizes.check(Table::Threads, Some(thread.0))?;
        checked_time(seen.0)?;
        let known = &self.threads.names[thread.0 as usize];
        if known.name == name {
            return Ok(());
        }
        let is_written = known.n_written + 1 < limits::MAX_THREAD_NAMES;
        if is_written {
            let mut new = (thread, seen, name.to_owned());
            self.put(section::THREAD_NAMES, |c| facts::name(c, &mut new))?;
            self.pending.add_strings(1);
        }
        let known = &mut self.threads.names[thread.0 as usize];
        name.clone_into(&mut known.name);
        known.n_written += usize::from(is_written);
        known.unwritten = (!is_written).then_some(seen);
        Ok(())
    }

    fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError> {
        self.not_finished()?;
        self.sizes.check(Table::Threads, Some(thread.0))?;
        check_interval(start.0, end.0)?;
        let seen = Seen {
            thread,
            start,
            end,
            n_ticks,
        };
        let known = &mut self.threads.seen[thread.0 as usize];
        if *known != seen {
            *known = seen;
            self.threads.changed.push(thread);
        }
        Ok(())
    }

    fn known_wait(&self, wait: &Wait) -> Option<WaitId> {
        self.interned.waits.get(wait).copied().map(WaitId)
    }

    fn room(&self) -> Room {
        // The rest is for threads, modules and their names.
        let n_bytes = self.pending.packed + self.pending.len();
        let has_bytes = n_bytes < TABLE_BYTES - TABLE_BYTES / 8;
        let has_room = |table: Table| has_bytes && table.has_room(self.sizes.get(table));
        Room {
            stacks: [Table::Frames, Table::Nodes, Table::Stacks]
                .into_iter()
                .all(has_room),
            waits: has_room(Table::Waits),
        }
    }

    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError> {
        self.intern(frame, |known| &mut known.frames).map(FrameId)
    }

    fn intern_node(
        &mut self,
        caller: Option<NodeId>,
        frame: FrameId,
    ) -> Result<NodeId, TraceError> {
        let node = StackNode { caller, frame };
        self.intern(node, |known| &mut known.nodes).map(NodeId)
    }

    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError> {
        let stack = Stack { leaf, end };
        self.intern(stack, |known| &mut known.stacks).map(StackId)
    }

    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError> {
        let (n_before, futex) = (self.sizes.get(Table::Waits), wait.futex);
        let id = WaitId(self.intern(wait, |known| &mut known.waits)?);
        if let Some(address) = futex.filter(|_| self.sizes.get(Table::Waits) > n_before) {
            self.put_lock_fact(Fact::Address(id, address))?;
        }
        Ok(id)
    }

    fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError> {
        if self.looks.n >= limits::MAX_LOOKS {
            return self.locks_skipped(look.n_looks.into());
        }
        self.put_lock_fact(Fact::Look(look.clone()))?;
        self.looks.n += 1;
        Ok(())
    }

    fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError> {
        // One entry a block: there may be millions.
        self.looks.n_skipped = self.looks.n_skipped.saturating_add(n);
        Ok(())
    }

    fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError> {
        self.put_lock_fact(Fact::OwnTid(thread, own))
    }

    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError> {
        if self.looks.n < limits::MAX_LOOKS {
            self.put_lock_fact(Fact::Moved(thread, tick))?;
            self.looks.n += 1;
        }
        Ok(())
    }

    fn intern_counter(&mut self, name: &CounterName) -> Result<CounterId, TraceError> {
        if let Some(&id) = self.interned.counters.get(name) {
            return Ok(id);
        }
        self.make_room()?;
        let out = self.pending.section(section::COUNTERS);
        let id = counters::put_name(out, name, &mut self.sizes)?;
        self.interned.counters.insert(name.clone(), id);
        Ok(id)
    }

    fn counters(&mut self, reading: &CounterReading) -> Result<(), TraceError> {
        self.make_room()?;
        let out = self.pending.section(section::COUNTERS);
        let before = &mut self.counters_before;
        Ok(counters::put_reading(out, &self.sizes, reading, before)?)
    }

    fn accounts(&mut self, reading: AccountsReading) -> Result<(), TraceError> {
        self.make_room()?;
        let is_too_long = reading.json.len() > limits::MAX_SETUP_BYTES;
        if is_too_long || self.n_accounts >= limits::MAX_ACCOUNTS {
            return Ok(());
        }
        self.n_accounts += 1;
        let mut content = Vec::with_capacity(reading.json.len() + 16);
        facts::put_accounts(&mut content, &self.sizes, &reading)?;
        put_section(&mut self.pending.setups, section::ACCOUNTS, &content);
        Ok(())
    }

    fn span(&mut self, span: &Span) -> Result<(), TraceError> {
        self.not_finished()?;
        if self.pending.spans.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        spans::check(span, &self.sizes)?;
        self.pending.spans.put(span);
        Ok(())
    }

    /// Written at the next flush, not before.
    fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError> {
        self.not_finished()?;
        if self.stats.as_ref() != Some(stats) {
            self.put_stats(stats, false)?;
            self.stats = Some(stats.clone());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        self.output.send()?;
        self.pack_pending()?;
        self.output.send()
    }

    fn finish(&mut self, stats: &Stats) -> Result<(), TraceError> {
        if !self.finished {
            self.output.send()?;
            self.pending.stats.clear();
            self.put_last_names()?;
            self.pack_pending()?;
            // In a block after all others: who reads it knows that none is missing at the end.
            self.put_stats(stats, true)?;
            let last = self.pending.take_sections()?;
            self.pack_tables(&last)?;
            self.finished = true;
        }
        self.output.send_with_index()
    }

    fn len_bytes(&self) -> u64 {
        self.output.written
    }
}

impl<W: Write> fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWriter")
            .field("written", &self.output.written)
            .field("sizes", &self.sizes)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
