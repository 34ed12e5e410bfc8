//! Turns a recording into a trace file while it runs: interns, collects, and writes a block at
//! each flush.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use wcprof_types::{StackEnd, Tid, TimeNs, Wait};
use zstd::bulk::Compressor;

use crate::error::{Malformed, TraceError};
use crate::hash::FastState;
use crate::limits;
use crate::model::{
    Frame, FrameId, Header, LocalNames, LockLook, Module, ModuleId, NodeId, Process, ProcessEnd,
    ProcessId, Source, Span, Stack, StackId, StackNode, Stats, SymbolTable, ThreadId, WaitId,
};
use crate::sink::TraceSink;
use crate::v1::facts::Seen;
use crate::v1::spans::{Columns, Guesses, Sizes};
use crate::v1::wire::{known, put, within};
use crate::v1::{
    FORMAT_VERSION, MAGIC, block, entries, facts, locks, origins, put_section, section, symbols,
};

/// Uncompressed bytes that are collected before a block is written without being asked.
const FLUSH_BYTES: usize = 2 << 20;
/// Half a millisecond more a second than 1 for a busy OSD, and a fifteenth less to write.
const COMPRESSION_LEVEL: i32 = 5;
/// Names are written once, when the recording is over.
const SYMBOLS_LEVEL: i32 = 9;

/// Writes a trace, block by block.
///
/// Everything that is added waits in memory until [`flush`](Self::flush), or until 2 MiB of it
/// have come together. A block reaches the file by one `write`, so that it survives the end of
/// this process; it is not synchronized to the disk.
///
/// When a write fails (full disk), the method returns the error, the file is cut back to its last
/// whole block, and what was to be written is kept and tried again at the next call. Nothing
/// that a failed call was asked to add has been added.
pub struct TraceWriter<W: Write> {
    sink: W,
    /// Cuts the sink to a length.
    rewind: fn(&mut W, u64) -> io::Result<()>,
    /// Bytes of whole blocks (and the file header) written.
    written: u64,
    broken: bool,
    finished: bool,
    compressor: Compressor<'static>,
    /// Packed blocks that are to be written next.
    unsent: Vec<u8>,
    pending: Pending,
    guesses: Guesses,
    tables: Interned,
    /// Per thread, and whether it changed since it was written.
    threads: Vec<ThreadFacts>,
    changed_threads: Vec<ThreadId>,
    stats: Option<Stats>,
}

/// Encoded entries that are in no block yet.
#[derive(Debug, Default)]
struct Pending {
    header: Option<Header>,
    processes: NewEntries,
    modules: NewEntries,
    threads: NewEntries,
    names: Vec<u8>,
    frames: NewEntries,
    nodes: NewEntries,
    stacks: NewEntries,
    waits: NewEntries,
    cgroups: Vec<u8>,
    process_ends: Vec<u8>,
    sources: Vec<u8>,
    spans: Columns,
    stats: Vec<u8>,
    /// Whole sections.
    setups: Vec<u8>,
    locks: Vec<u8>,
    before_look: locks::Before,
    n_looks: usize,
}

/// Entries of a table that are in no block yet, and the size of the table.
#[derive(Debug, Default)]
struct NewEntries {
    n_written: usize,
    n: usize,
    bytes: Vec<u8>,
}

impl NewEntries {
    /// Makes place for one more entry: its id, and where to encode it.
    fn push(
        &mut self,
        what: &'static str,
        limit: usize,
    ) -> Result<(u32, &mut Vec<u8>), TraceError> {
        let count = self.n as u64 + 1;
        within(what, count, limit).map_err(TraceError::Invalid)?;
        let id =
            u32::try_from(self.n).map_err(|_| TraceError::Invalid(Malformed::NumberTooLarge))?;
        self.n += 1;
        Ok((id, &mut self.bytes))
    }

    fn take_into(&mut self, out: &mut Vec<u8>, tag: u8, scratch: &mut Vec<u8>) {
        if self.n > self.n_written {
            scratch.clear();
            put(scratch, self.n_written as u64);
            put(scratch, (self.n - self.n_written) as u64);
            scratch.append(&mut self.bytes);
            put_section(out, tag, scratch);
            self.n_written = self.n;
        }
    }
}

#[derive(Debug, Default)]
struct Interned {
    frames: HashMap<Frame, FrameId, FastState>,
    nodes: HashMap<StackNode, NodeId, FastState>,
    stacks: HashMap<Stack, StackId, FastState>,
    waits: HashMap<Wait, WaitId, FastState>,
}

#[derive(Debug)]
struct ThreadFacts {
    seen: Seen,
    changed: bool,
    name: String,
}

impl TraceWriter<File> {
    /// Creates the file with mode 0600, or empties an existing regular file and makes it so.
    ///
    /// A FIFO, device or socket is refused, as is a file that another wcprof writes to.
    pub fn create(path: impl AsRef<Path>, header: &Header) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let failed = |source| TraceError::Create {
            path: path.to_owned(),
            source,
        };
        // O_NONBLOCK: opening a FIFO fails or returns, and is refused below.
        let opened = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path);
        let not_regular = || TraceError::NotRegular {
            path: path.to_owned(),
        };
        let file = match opened {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Err(not_regular()),
            other => other.map_err(failed)?,
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(not_regular());
        }
        lock(&file, path, failed)?;
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        Self::with_rewind(file, header, |file, len| file.set_len(len))
    }
}

/// Takes the file's lock. A file system without locks is no reason to fail.
pub(crate) fn lock(
    file: &File,
    path: &Path,
    failed: impl Fn(io::Error) -> TraceError,
) -> Result<(), TraceError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(TraceError::Busy {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(e))
            if matches!(
                e.raw_os_error(),
                Some(libc::ENOSYS | libc::ENOLCK | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(())
        }
        Err(TryLockError::Error(e)) => Err(failed(e)),
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
        let mut unsent = MAGIC.to_vec();
        unsent.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let pending = Pending {
            header: Some(header.clone()),
            ..Pending::default()
        };
        let mut writer = Self {
            sink,
            rewind,
            written: 0,
            broken: false,
            finished: false,
            compressor: Compressor::new(COMPRESSION_LEVEL).map_err(TraceError::Write)?,
            unsent,
            pending,
            guesses: Guesses::default(),
            tables: Interned::default(),
            threads: Vec::new(),
            changed_threads: Vec::new(),
            stats: None,
        };
        // Whether the disk is full is known before a recording begins.
        writer.send()?;
        Ok(writer)
    }

    /// Sets when the recording began, ns since 1970 (UTC), in place of what the header says: time 0 of the
    /// trace is known only when sampling has begun. Without effect once a block is written.
    pub fn begins_at(&mut self, unix_ns: u64) {
        if let Some(header) = &mut self.pending.header {
            header.started_unix_ns = unix_ns;
        }
    }

    /// Adds a process.
    pub fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        self.make_room()?;
        let (id, out) = self
            .pending
            .processes
            .push("processes", limits::MAX_PROCESSES)?;
        entries::put_process(out, &process);
        if !process.cgroup.is_empty() {
            facts::put_cgroup(&mut self.pending.cgroups, ProcessId(id), &process.cgroup);
        }
        Ok(ProcessId(id))
    }

    /// Notes that a process's part of the recording is over.
    pub fn process_ended(
        &mut self,
        process: ProcessId,
        end: &ProcessEnd,
    ) -> Result<(), TraceError> {
        self.make_room()?;
        check("process", process.0, self.pending.processes.n)?;
        entries::time(end.time.0).map_err(TraceError::Invalid)?;
        origins::put_process_end(&mut self.pending.process_ends, process, end);
        Ok(())
    }

    /// Adds a recording that the trace is merged from; its processes come after those of the
    /// sources before it.
    pub fn add_source(&mut self, source: &Source) -> Result<(), TraceError> {
        self.make_room()?;
        for moment in [source.start, source.duration] {
            entries::time(moment.0).map_err(TraceError::Invalid)?;
        }
        origins::put_source(&mut self.pending.sources, source);
        Ok(())
    }

    /// Adds how a process and its host are set up, as JSON of at most
    /// [`MAX_SETUP_BYTES`](limits::MAX_SETUP_BYTES). An empty one is not written.
    pub fn add_setup(&mut self, json: &str) -> Result<(), TraceError> {
        self.make_room()?;
        let n_bytes = json.len() as u64;
        within("bytes of a setup", n_bytes, limits::MAX_SETUP_BYTES)
            .map_err(TraceError::Invalid)?;
        put_section(&mut self.pending.setups, section::SETUP, json.as_bytes());
        Ok(())
    }

    /// Adds a module of a process.
    pub fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        self.make_room()?;
        check("process", module.process.0, self.pending.processes.n)?;
        let (id, out) = self.pending.modules.push("modules", limits::MAX_MODULES)?;
        entries::put_module(out, &module);
        Ok(ModuleId(id))
    }

    /// Adds a thread with the name (`comm`) that it had when it was first seen.
    pub fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError> {
        self.make_room()?;
        check("process", process.0, self.pending.processes.n)?;
        entries::time(seen.0).map_err(TraceError::Invalid)?;
        let (id, out) = self.pending.threads.push("threads", limits::MAX_THREADS)?;
        entries::put_thread(out, process, tid, seen, name);
        self.threads.push(ThreadFacts {
            seen: Seen {
                start: seen,
                end: seen,
                n_ticks: 0,
            },
            changed: false,
            name: name.to_owned(),
        });
        Ok(ThreadId(id))
    }

    /// Notes a thread's name; nothing when it is the one noted last.
    pub fn thread_name(
        &mut self,
        thread: ThreadId,
        seen: TimeNs,
        name: &str,
    ) -> Result<(), TraceError> {
        self.make_room()?;
        check("thread", thread.0, self.threads.len())?;
        entries::time(seen.0).map_err(TraceError::Invalid)?;
        let facts = &mut self.threads[thread.0 as usize];
        if facts.name != name {
            name.clone_into(&mut facts.name);
            facts::put_name(&mut self.pending.names, thread, seen, name);
        }
        Ok(())
    }

    /// Notes what is known now of a thread: its first and last observation and the ticks that
    /// observed it. Replaces what was noted before; written at the next flush.
    pub fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError> {
        self.not_finished()?;
        check("thread", thread.0, self.threads.len())?;
        if start > end || end.0 > limits::MAX_TIME_NS {
            return Err(TraceError::Invalid(Malformed::Interval {
                start: start.0,
                end: end.0,
            }));
        }
        let seen = Seen {
            start,
            end,
            n_ticks,
        };
        let facts = &mut self.threads[thread.0 as usize];
        if facts.seen != seen {
            facts.seen = seen;
            if !std::mem::replace(&mut facts.changed, true) {
                self.changed_threads.push(thread);
            }
        }
        Ok(())
    }

    /// The id of a frame; equal frames have one id.
    pub fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError> {
        if let Some(&id) = self.tables.frames.get(&frame) {
            return Ok(id);
        }
        self.make_room()?;
        if let Frame::Native { module, .. } = frame {
            check("module", module.0, self.pending.modules.n)?;
        }
        let (id, out) = self.pending.frames.push("frames", limits::MAX_FRAMES)?;
        entries::put_frame(out, &frame);
        self.tables.frames.insert(frame, FrameId(id));
        Ok(FrameId(id))
    }

    /// The id of a frame below its caller; `None` for the root-most frame.
    pub fn intern_node(
        &mut self,
        caller: Option<NodeId>,
        frame: FrameId,
    ) -> Result<NodeId, TraceError> {
        let node = StackNode { caller, frame };
        if let Some(&id) = self.tables.nodes.get(&node) {
            return Ok(id);
        }
        self.make_room()?;
        check("frame", frame.0, self.pending.frames.n)?;
        if let Some(caller) = caller {
            check("stack node", caller.0, self.pending.nodes.n)?;
        }
        let (id, out) = self.pending.nodes.push("stack nodes", limits::MAX_NODES)?;
        entries::put_node(out, id, node);
        self.tables.nodes.insert(node, NodeId(id));
        Ok(NodeId(id))
    }

    /// The id of a stack by its leaf.
    pub fn intern_leaf(
        &mut self,
        leaf: Option<NodeId>,
        end: StackEnd,
    ) -> Result<StackId, TraceError> {
        let stack = Stack { leaf, end };
        if let Some(&id) = self.tables.stacks.get(&stack) {
            return Ok(id);
        }
        self.make_room()?;
        if let Some(leaf) = leaf {
            check("stack node", leaf.0, self.pending.nodes.n)?;
        }
        let (id, out) = self.pending.stacks.push("stacks", limits::MAX_STACKS)?;
        entries::put_stack(out, stack);
        self.tables.stacks.insert(stack, StackId(id));
        Ok(StackId(id))
    }

    /// The id of a stack by its frames, root first.
    pub fn intern_stack(
        &mut self,
        root_first: impl IntoIterator<Item = FrameId>,
        end: StackEnd,
    ) -> Result<StackId, TraceError> {
        TraceSink::intern_stack(self, root_first, end)
    }

    /// The id of a wait.
    pub fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError> {
        if let Some(&id) = self.tables.waits.get(&wait) {
            return Ok(id);
        }
        self.make_room()?;
        let (id, out) = self.pending.waits.push("waits", limits::MAX_WAITS)?;
        entries::put_wait(out, &wait);
        if let Some(address) = wait.futex {
            locks::put_address(&mut self.pending.locks, WaitId(id), address);
        }
        self.tables.waits.insert(wait, WaitId(id));
        Ok(WaitId(id))
    }

    /// Adds looks at a lock; those beyond [`MAX_LOOKS`](limits::MAX_LOOKS) are only counted.
    pub fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError> {
        self.make_room()?;
        check("process", look.process.0, self.pending.processes.n)?;
        for owner in &look.owners {
            check("thread", owner.thread.0, self.threads.len())?;
            if let Some(stack) = owner.stack {
                check("stack", stack.0, self.pending.stacks.n)?;
            }
            if let Some(wait) = owner.wait {
                check("wait", wait.0, self.pending.waits.n)?;
            }
        }
        if self.pending.n_looks >= limits::MAX_LOOKS {
            locks::put_skipped(&mut self.pending.locks, look.n_looks.into());
            return Ok(());
        }
        self.pending.n_looks += 1;
        let pending = &mut self.pending;
        locks::put_look(&mut pending.locks, look, &mut pending.before_look);
        Ok(())
    }

    /// Notes looks at locks that were left out.
    pub fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError> {
        self.make_room()?;
        locks::put_skipped(&mut self.pending.locks, n);
        Ok(())
    }

    /// Notes a thread's number in its own pid namespace.
    pub fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError> {
        self.make_room()?;
        check("thread", thread.0, self.threads.len())?;
        locks::put_own_tid(&mut self.pending.locks, thread, own);
        Ok(())
    }

    /// Notes that a thread left its wait while the lock was looked at.
    pub fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError> {
        self.make_room()?;
        check("thread", thread.0, self.threads.len())?;
        entries::time(tick.0).map_err(TraceError::Invalid)?;
        if self.pending.n_looks < limits::MAX_LOOKS {
            self.pending.n_looks += 1;
            locks::put_moved(&mut self.pending.locks, thread, tick);
        }
        Ok(())
    }

    /// Adds a span. Its times are cut to microseconds; what its weight has beyond whole ones is
    /// added to the thread's next span, so that sums are right to a microsecond. Small when spans
    /// come in the order of their ends, and spans of a thread with the same interval come one
    /// after the other.
    pub fn span(&mut self, span: &Span) -> Result<(), TraceError> {
        self.make_room()?;
        Sizes {
            n_threads: self.pending.threads.n,
            n_stacks: self.pending.stacks.n,
            n_waits: self.pending.waits.n,
        }
        .check(span)
        .map_err(TraceError::Invalid)?;
        self.guesses.put(&mut self.pending.spans, span);
        Ok(())
    }

    /// Notes the counts so far, for a recording that will not end cleanly; written at the next
    /// flush, not before.
    pub fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError> {
        self.not_finished()?;
        if self.stats.as_ref() != Some(stats) {
            self.pending.stats.clear();
            facts::put_stats(&mut self.pending.stats, stats, false);
            self.stats = Some(stats.clone());
        }
        Ok(())
    }

    /// Writes what is pending. Call it about once a second.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.send()?;
        self.pack_pending()?;
        self.send()
    }

    /// Writes what is pending and the final counts, which end the recording: only names may
    /// follow. After an error it can be called again.
    pub fn finish(&mut self, stats: &Stats) -> Result<(), TraceError> {
        if !self.finished {
            self.send()?;
            self.pending.stats.clear();
            facts::put_stats(&mut self.pending.stats, stats, true);
            self.pack_pending()?;
            self.finished = true;
        }
        self.send()
    }

    /// Writes names of frames, in place of names written before; also after
    /// [`finish`](Self::finish).
    pub fn write_symbols(&mut self, table: &SymbolTable) -> Result<(), TraceError> {
        self.flush()?;
        pack_symbols(
            section::SYMBOLS,
            table,
            self.pending.frames.n,
            &mut self.unsent,
        )?;
        self.send_names()
    }

    /// Writes names that cannot be found later; once, also after [`finish`](Self::finish).
    pub fn write_local_names(&mut self, names: &LocalNames) -> Result<(), TraceError> {
        self.flush()?;
        pack_local_names(names, self.pending.frames.n, &mut self.unsent)?;
        self.send_names()
    }

    fn send_names(&mut self) -> Result<(), TraceError> {
        let sent = self.send();
        if sent.is_err() {
            // Names are large and can be added later: no reason to hold the other blocks up.
            self.unsent.clear();
        }
        sent
    }

    /// Bytes in the file.
    pub fn len_bytes(&self) -> u64 {
        self.written
    }

    /// The sink, for instance to drop it before names are appended. What is pending is lost.
    pub fn into_inner(self) -> W {
        self.sink
    }

    #[cfg(test)]
    pub(crate) fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    fn not_finished(&self) -> Result<(), TraceError> {
        if self.finished {
            return Err(TraceError::Finished);
        }
        Ok(())
    }

    /// Flushes when enough is pending.
    fn make_room(&mut self) -> Result<(), TraceError> {
        self.not_finished()?;
        if self.pending.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Makes a block of what is pending.
    fn pack_pending(&mut self) -> Result<(), TraceError> {
        let mut sections = Vec::with_capacity(self.pending.len() + 1024);
        let mut scratch = Vec::new();
        let p = &mut self.pending;
        if let Some(header) = p.header.take() {
            entries::put_header(&mut scratch, &header);
            put_section(&mut sections, section::HEADER, &scratch);
        }
        for (entries, tag) in [
            (&mut p.processes, section::PROCESSES),
            (&mut p.modules, section::MODULES),
            (&mut p.threads, section::THREADS),
            (&mut p.frames, section::FRAMES),
            (&mut p.nodes, section::NODES),
            (&mut p.stacks, section::STACKS),
            (&mut p.waits, section::WAITS),
        ] {
            entries.take_into(&mut sections, tag, &mut scratch);
        }
        put_section(&mut sections, section::LOCKS, &p.locks);
        put_section(&mut sections, section::CGROUPS, &p.cgroups);
        put_section(&mut sections, section::PROCESS_ENDS, &p.process_ends);
        put_section(&mut sections, section::SOURCES, &p.sources);
        put_section(&mut sections, section::THREAD_NAMES, &p.names);
        self.changed_threads.sort_unstable();
        scratch.clear();
        facts::put_seen(
            &mut scratch,
            self.changed_threads.iter().filter_map(|&thread| {
                let facts = self.threads.get_mut(thread.0 as usize)?;
                facts.changed = false;
                Some((thread, facts.seen))
            }),
        );
        self.changed_threads.clear();
        put_section(&mut sections, section::THREAD_FACTS, &scratch);
        scratch.clear();
        p.spans.take_into(&mut scratch);
        put_section(&mut sections, section::SPANS, &scratch);
        put_section(&mut sections, section::STATS, &p.stats);
        sections.append(&mut p.setups);
        p.cgroups.clear();
        p.process_ends.clear();
        p.sources.clear();
        p.locks.clear();
        p.before_look = locks::Before::default();
        p.names.clear();
        p.stats.clear();
        if sections.is_empty() {
            return Ok(());
        }
        block::pack(&mut self.compressor, &sections, &mut self.unsent).map_err(TraceError::Invalid)
    }

    /// Writes the packed blocks.
    fn send(&mut self) -> Result<(), TraceError> {
        if self.broken {
            return Err(TraceError::Broken);
        }
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self
            .sink
            .write_all(&self.unsent)
            .and_then(|()| self.sink.flush())
        {
            Ok(()) => {
                self.written += self.unsent.len() as u64;
                self.unsent.clear();
                Ok(())
            }
            Err(e) => {
                self.broken = (self.rewind)(&mut self.sink, self.written).is_err();
                Err(TraceError::Write(e))
            }
        }
    }
}

/// Appends blocks of names. Blocks are large, and each is one section.
pub(crate) fn pack_symbols(
    tag: u8,
    table: &SymbolTable,
    n_frames: usize,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    let mut compressor = Compressor::new(SYMBOLS_LEVEL).map_err(TraceError::Write)?;
    if let Some((last, _)) = table.frames.last_key_value() {
        check("frame", last.0, n_frames)?;
    }
    for content in symbols::sections(table) {
        let mut sections = Vec::with_capacity(content.len() + 8);
        put_section(&mut sections, tag, &content);
        block::pack(&mut compressor, &sections, out).map_err(TraceError::Invalid)?;
    }
    Ok(())
}

fn pack_local_names(
    names: &LocalNames,
    n_frames: usize,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    pack_symbols(section::LOCAL_NAMES, &names.names, n_frames, out)?;
    for later in &names.later {
        check("frame", later.frame.0, n_frames)?;
        entries::time(later.since.0).map_err(TraceError::Invalid)?;
    }
    let mut compressor = Compressor::new(SYMBOLS_LEVEL).map_err(TraceError::Write)?;
    for content in symbols::later_sections(&names.later) {
        let mut sections = Vec::with_capacity(content.len() + 8);
        put_section(&mut sections, section::LATER_NAMES, &content);
        block::pack(&mut compressor, &sections, out).map_err(TraceError::Invalid)?;
    }
    Ok(())
}

fn check(what: &'static str, id: u32, len: usize) -> Result<(), TraceError> {
    known(what, id, len).map_err(TraceError::Invalid)
}

impl Pending {
    fn len(&self) -> usize {
        let tables = [
            &self.processes,
            &self.modules,
            &self.threads,
            &self.frames,
            &self.nodes,
            &self.stacks,
            &self.waits,
        ];
        tables.iter().map(|t| t.bytes.len()).sum::<usize>()
            + self.cgroups.len()
            + self.process_ends.len()
            + self.sources.len()
            + self.names.len()
            + self.spans.len()
            + self.setups.len()
            + self.locks.len()
    }
}

impl<W: Write> fmt::Debug for TraceWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWriter")
            .field("written", &self.written)
            .field("broken", &self.broken)
            .field("finished", &self.finished)
            .field("n_threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}
