//! What a recording holds. Ids are indices into the tables of the trace they came from.

use std::collections::BTreeMap;
use std::fmt;

use wcprof_types::lock::FutexWords;
use wcprof_types::{
    Avma, BuildId, CounterName, CounterValue, FileOffset, LoadBias, Pid, RelativeAddress, StackEnd,
    Svma, ThreadState, Tid, TimeNs, Wait,
};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub struct $name(pub u32);
    };
}

id! {
    /// Index into [`Tables::processes`].
    ProcessId
}
id! {
    /// Index into [`Tables::threads`].
    ThreadId
}
id! {
    /// Index into [`Tables::modules`].
    ModuleId
}
id! {
    /// Index into [`Tables::frames`].
    FrameId
}
id! {
    /// Index into [`Tables::nodes`].
    NodeId
}
id! {
    /// Index into [`Tables::stacks`].
    StackId
}
id! {
    /// Index into [`Tables::waits`].
    WaitId
}
id! {
    /// Index into [`CounterFacts::names`].
    CounterId
}

/// Facts about the recording that are known when it begins.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Header {
    /// Version of wcprof that recorded.
    pub wcprof_version: String,
    /// `bpf`, `procfs` or `procfs-only`.
    pub engine: String,
    /// Why a better engine was not used, and other remarks on this recording.
    pub notes: Vec<String>,
    /// Ticks a second that were asked for.
    pub rate_hz: u32,
    /// Host name.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPUs online.
    pub n_cpus: u32,
    /// Wall-clock time of time 0, nanoseconds since 1970 (UTC).
    pub started_unix_ns: u64,
    /// Snapshots of stacks that the trace was imported from, in each of which a thread weighs [`SNAPSHOT_NS`]; 0 of what has
    /// a time axis.
    pub n_snapshots: u32,
}

/// What a thread weighs in a snapshot of stacks, of which no time is known: threads on average are threads in a snapshot.
pub const SNAPSHOT_NS: u64 = 1_000_000_000;

/// A recorded process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// Its pid where it was recorded.
    pub pid: Pid,
    /// `/proc/PID/comm`.
    pub comm: String,
    /// `/proc/PID/cmdline`, arguments apart; empty when not recorded.
    pub cmdline: Vec<String>,
    /// Its control group's path (`/proc/PID/cgroup`) as wcprof saw it; empty when not recorded.
    pub cgroup: String,
    /// Which process it is, of all that ever had its pid: the boot id of its kernel, a space, and its start in
    /// clock ticks since boot; empty when not recorded.
    pub birth: String,
}

/// How a process's part of a recording ended before the recording did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcessEnd {
    /// When.
    pub time: TimeNs,
    /// Why: `exited`, `exec`.
    pub reason: String,
}

/// One of the recordings that a trace was merged from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    /// Host name.
    pub host: String,
    /// `bpf`, `procfs` or `procfs-only`.
    pub engine: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPUs online.
    pub n_cpus: u32,
    /// Ticks a second that were asked for.
    pub rate_hz: u32,
    /// Wall-clock time of its beginning, nanoseconds since 1970 (UTC), by the host's own clock.
    pub started_unix_ns: u64,
    /// When it began in the merged trace.
    pub start: TimeNs,
    /// Its length.
    pub duration: TimeNs,
    /// The processes that it recorded first: so many, after those of the sources before it.
    pub n_processes: u32,
}

impl Source {
    /// Its begin and end in the merged trace.
    pub(crate) fn part(&self) -> (TimeNs, TimeNs) {
        let end = self.start.0.saturating_add(self.duration.0);
        (self.start, TimeNs(end))
    }
}

/// A loaded ELF image.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Module {
    /// The process it is mapped in.
    pub process: ProcessId,
    /// Path in the target's mount namespace, without ` (deleted)`; `[vdso]` for the vdso.
    pub path: String,
    /// Build-id note; `None` when the file has none or could not be read.
    pub build_id: Option<BuildId>,
    /// First mapped address in the target.
    pub start: Avma,
    /// First address after its last mapping.
    pub end: Avma,
    /// File offset of `start`.
    pub offset: FileOffset,
    /// AVMA − SVMA.
    pub bias: LoadBias,
    /// SVMA that relative addresses count from (see [`RelativeAddress`]).
    pub base: Svma,
    /// The file was deleted or replaced while mapped.
    pub deleted: bool,
}

impl Module {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        wcprof_types::file_name(&self.path)
    }

    /// The address in the file of a relative address.
    pub fn svma(&self, relative: RelativeAddress) -> Svma {
        Svma(self.base.0.wrapping_add(relative.0))
    }
}

/// One activation's address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Frame {
    /// Code of a module. `address` is the lookup address (return address − 1 except in a leaf),
    /// `function` the start of the covering FDE when one exists.
    Native {
        /// The module.
        module: ModuleId,
        /// Lookup address.
        address: RelativeAddress,
        /// Start of the function by its FDE.
        function: Option<RelativeAddress>,
    },
    /// Code outside every module (JIT).
    Unmapped(Avma),
    /// A place in the kernel, by name.
    Kernel(String),
    /// Code of the kernel, by its lookup address: inside the call instruction, but for where an
    /// interrupt came. Its name is in [`Names::local`].
    KernelCode(Avma),
    /// Of a kind that only a newer wcprof knows; [`LOST_FRAME`] if it was in a damaged block.
    Unknown(u8),
}

/// The kind of a frame that was in a damaged block.
pub const LOST_FRAME: u8 = u8::MAX;

impl Default for Frame {
    fn default() -> Self {
        Self::Unmapped(Avma(0))
    }
}

/// A node of the tree of stacks.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct StackNode {
    /// The node of the caller; `None` for the root-most frame.
    pub caller: Option<NodeId>,
    /// This activation.
    pub frame: FrameId,
}

/// A whole stack.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stack {
    /// Its leaf; `None` for a stack without frames.
    pub leaf: Option<NodeId>,
    /// Why the root-most frame has no caller.
    pub end: StackEnd,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// Its process.
    pub process: ProcessId,
    /// Its tid where it was recorded; 0 for the pseudo-thread that holds CPU time of threads that
    /// exited without being seen.
    pub tid: Tid,
    /// Names (`comm`) in order, each with the time it was first seen. Never empty.
    pub names: Vec<(TimeNs, String)>,
    /// First observation.
    pub start: TimeNs,
    /// Last observation.
    pub end: TimeNs,
    /// Ticks that observed it.
    pub n_ticks: u64,
}

impl Thread {
    /// A thread as it was first seen, with the name that it had then.
    pub fn new(process: ProcessId, tid: Tid, seen: TimeNs, name: String) -> Self {
        Self {
            process,
            tid,
            names: vec![(seen, name)],
            start: seen,
            end: seen,
            n_ticks: 0,
        }
    }

    /// The last name seen.
    pub fn name(&self) -> &str {
        self.names.last().map_or("", |(_, n)| n)
    }
}

/// A stretch of one thread's time with one state and one stack. Spans of a thread may overlap in
/// `start..end` (the share of a tick's interval that was spent on-CPU and the share that was
/// blocked lie in the same interval); their weights add up to the thread's observed time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Whose time.
    pub thread: ThreadId,
    /// Begin of the interval that the weight lies in.
    pub start: TimeNs,
    /// End of that interval.
    pub end: TimeNs,
    /// Nanoseconds of wall-clock time, at most `end - start`.
    pub weight: u64,
    /// Observations (ticks or timer samples) that this span stands on.
    pub n_samples: u32,
    /// What the thread did.
    pub state: ThreadState,
    /// What it waited in; only when blocked.
    pub wait: Option<WaitId>,
    /// Its stack; `None` when no stack was sampled for this time.
    pub stack: Option<StackId>,
}

/// What a recording lacks, as counts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Losses {
    /// Ticks that began more than half an interval late.
    pub n_late: u64,
    /// Ticks skipped because the one before had not ended.
    pub n_missed: u64,
    /// Stack copies dropped because the thread ran while it was copied.
    pub n_torn: u64,
    /// Timer samples that the kernel dropped (ring full).
    pub n_lost: u64,
    /// Tick batches dropped because unwinding fell behind.
    pub n_dropped_batches: u64,
}

/// Counts over the whole recording; written last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stats {
    /// Length of the recording.
    pub duration: TimeNs,
    /// Ticks taken.
    pub n_ticks: u64,
    /// What is missing.
    pub losses: Losses,
    /// Thread observations (threads × ticks).
    pub n_observations: u64,
    /// Timer samples (stacks of running threads) taken.
    pub n_timer_samples: u64,
    /// Stacks by why they ended, counted once an unwinding.
    pub ends: BTreeMap<StackEnd, u64>,
    /// CPU time that wcprof itself used, nanoseconds.
    pub own_cpu_ns: u64,
    /// Most resident memory that wcprof itself used, bytes.
    pub own_rss_bytes: u64,
    /// Changes of the sampling rate: when, and the new rate in Hz.
    pub rate_changes: Vec<(TimeNs, u32)>,
    /// Why the recording ended: `duration`, `interrupted`, `target exited`, `target exec`, ...
    pub end_reason: String,
    /// The recording ended cleanly; false when the file was cut (`kill -9`, full disk).
    pub complete: bool,
}

impl Stats {
    /// The counts that add up over recordings, in the order of the file.
    pub(crate) fn counts(&self) -> [u64; 9] {
        self.clone().counts_mut().map(|count| *count)
    }

    /// Adds those of another recording.
    pub fn add_counts(&mut self, other: &Self) {
        for (sum, n) in self.counts_mut().into_iter().zip(other.counts()) {
            *sum = sum.saturating_add(n);
        }
    }

    /// The same, to be changed.
    pub(crate) fn counts_mut(&mut self) -> [&mut u64; 9] {
        [
            &mut self.n_ticks,
            &mut self.losses.n_late,
            &mut self.losses.n_missed,
            &mut self.n_observations,
            &mut self.losses.n_torn,
            &mut self.n_timer_samples,
            &mut self.losses.n_lost,
            &mut self.losses.n_dropped_batches,
            &mut self.own_cpu_ns,
        ]
    }
}

/// A function at a frame, as symbols name it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SymbolFrame {
    /// Demangled name with its arguments; `module+0xoffset` of the function's start without a
    /// symbol.
    pub name: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Inlined into the next one in the list.
    pub inlined: bool,
    /// `name` comes from a symbol or debug information; false for `module+0xoffset`.
    pub resolved: bool,
}

impl SymbolFrame {
    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        self.name.len() + self.file.as_ref().map_or(0, String::len) + size_of::<Self>()
    }
}

/// Names of frames, resolved when the trace was recorded or later.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolTable {
    /// By frame: its functions, innermost inline function first; the last is not inlined. A frame
    /// that is absent has no name but its address.
    pub frames: BTreeMap<FrameId, Vec<SymbolFrame>>,
}

/// Names that only the recorded machine could give, while it ran: of kernel code, of code that is
/// in no file (JIT compilers), of the vdso. They go before names that are found later.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalNames {
    /// By frame, as the names of [`Names::symbols`].
    pub names: SymbolTable,
    /// Names of code that took the place of other code while it was recorded, by frame, then by
    /// time.
    pub later: Vec<LaterName>,
}

/// From when on a frame's address belongs to another function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaterName {
    /// The frame.
    pub frame: FrameId,
    /// Since when.
    pub since: TimeNs,
    /// Its functions, as in [`SymbolTable::frames`].
    pub functions: Vec<SymbolFrame>,
}

/// What was seen of locks that threads waited for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockFacts {
    /// Numbers of threads in the target's own pid namespace, where they differ.
    pub own_tids: BTreeMap<ThreadId, Tid>,
    /// Looks at locks, each lock's in the order of time.
    pub looks: Vec<LockLook>,
    /// Threads that left a wait while its lock was looked at, and the tick.
    pub moved: Vec<(ThreadId, TimeNs)>,
    /// Looks left out, of locks beyond those looked at in one tick, or beyond what a trace holds.
    pub n_skipped: u64,
}

/// One or more looks, tick by tick, that found the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LockLook {
    /// Whose memory.
    pub process: ProcessId,
    /// The word that is waited on.
    pub address: Avma,
    /// The tick before the first look.
    pub since: TimeNs,
    /// The tick of the last look.
    pub until: TimeNs,
    /// How many looks.
    pub n_looks: u32,
    /// What was there, at the last look.
    pub words: FutexWords,
    /// Threads of the process that the words name, if they are the owners.
    pub owners: Vec<LockOwner>,
}

/// A thread that may hold a lock, as it was at a tick.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LockOwner {
    /// Which word names it.
    pub word: u8,
    /// The thread.
    pub thread: ThreadId,
    /// What it did.
    pub state: OwnerState,
    /// It ran between its own observation and the look, so that its stack may be an older one.
    pub moved: bool,
    /// Its stack; `None` when there is none of that tick.
    pub stack: Option<StackId>,
    /// What it waited in itself.
    pub wait: Option<WaitId>,
}

/// What the owner of a lock did at a tick.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum OwnerState {
    /// Ran, or waited for a CPU where the engine cannot tell; its stack is that of the nearest
    /// timer sample.
    #[default]
    Running,
    /// Waited for a CPU.
    Queued,
    /// Waited.
    Blocked,
}

/// What processes counted of their own work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CounterFacts {
    /// Names, each once.
    pub names: Vec<CounterName>,
    /// Each process's in the order of time.
    pub readings: Vec<CounterReading>,
}

/// What a process said at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CounterReading {
    /// The process.
    pub process: ProcessId,
    /// When.
    pub time: TimeNs,
    /// Values since the process started. A counter that is absent has not changed since the last reading of the
    /// process, or is 0.
    pub values: Vec<(CounterId, CounterValue)>,
}

/// What the kernel had accounted at a time, beside the threads' own times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountsReading {
    /// Index into [`Origins::sources`]: of which recording. 0 in a trace that was not merged.
    pub source: u32,
    /// When.
    pub time: TimeNs,
    /// A JSON document, which is not checked here (`wcprof_types::accounts`).
    pub json: String,
}

/// Where what a trace holds comes from: its processes, what they say of themselves, and the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Origins {
    /// Processes whose part ended before the recording.
    pub process_ends: BTreeMap<ProcessId, ProcessEnd>,
    /// Processes that stand for several of one program, and for how many. A thread of such a process stands for
    /// several, one after the other.
    pub folded: BTreeMap<ProcessId, u32>,
    /// The recordings that a merged trace was made of; empty for a recording.
    pub sources: Vec<Source>,
    /// Processes of a merged trace that other sources than their own recorded, too, at another time; each with
    /// the index of such a source.
    pub recorded_again: Vec<(ProcessId, u32)>,
    /// How processes and their host were set up when the recording began: a JSON document each,
    /// which is not checked here (`wcprof_types::snapshot`).
    pub setups: Vec<String>,
    /// What processes counted.
    pub counters: CounterFacts,
    /// What the kernel accounted, each recording's in the order of time.
    pub accounts: Vec<AccountsReading>,
    /// What the file has and the tables have not.
    pub unread: Unread,
}

/// Names of functions that are in a trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Names {
    /// Those of all frames, when they were saved.
    pub symbols: Option<SymbolTable>,
    /// Names that cannot be found later.
    pub local: LocalNames,
}

/// What of a file was not understood or could not be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// Damaged parts of the file; each is a block or several.
    pub n_damaged: u64,
    /// Their bytes.
    pub n_bytes: u64,
    /// Where in the file the first one is.
    pub first_damage: u64,
    /// Entries of tables that were in them.
    pub n_lost_entries: u64,
    /// Entries and codes that only a newer wcprof knows.
    pub n_unknown: u64,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.n_damaged > 0 {
            let n = self.n_damaged;
            let parts = if n == 1 { "part" } else { "parts" };
            write!(
                f,
                "the trace file is damaged at byte {}: {n} {parts} of it ({} bytes) could not be read",
                self.first_damage, self.n_bytes
            )?;
            if self.n_lost_entries > 0 {
                write!(
                    f,
                    ", with {} frames, stacks and the like",
                    self.n_lost_entries
                )?;
            }
            separator = "; ";
        }
        if self.n_unknown > 0 {
            write!(
                f,
                "{separator}the trace has {} entries or values of a newer wcprof, which this one does not know",
                self.n_unknown
            )?;
        }
        Ok(())
    }
}

/// Everything of a trace but its spans.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tables {
    /// Facts known at the beginning.
    pub header: Header,
    /// Processes.
    pub processes: Vec<Process>,
    /// Where processes come from, and how they were set up.
    pub origins: Origins,
    /// Modules.
    pub modules: Vec<Module>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Interned frames.
    pub frames: Vec<Frame>,
    /// Interned stack nodes; a node's caller has a smaller id.
    pub nodes: Vec<StackNode>,
    /// Interned stacks.
    pub stacks: Vec<Stack>,
    /// Interned waits.
    pub waits: Vec<Wait>,
    /// Counts.
    pub stats: Stats,
    /// Names of functions.
    pub names: Names,
    /// What was seen of locks.
    pub locks: LockFacts,
}

impl Tables {
    /// Tables of a recording in which nothing was seen.
    pub fn new(header: Header) -> Self {
        Self {
            header,
            ..Self::default()
        }
    }

    /// When each process was recorded: begin and end of each recording, in order of time; at least one.
    pub fn recorded_parts(&self) -> Vec<Vec<(TimeNs, TimeNs)>> {
        let sources = &self.origins.sources;
        let firsts = sources.iter().flat_map(|source| {
            let n = (source.n_processes as usize).min(self.processes.len());
            std::iter::repeat_n(source.part(), n)
        });
        let whole = (TimeNs(0), self.stats.duration);
        let firsts = firsts.chain(std::iter::repeat(whole));
        let mut all: Vec<_> = firsts
            .take(self.processes.len())
            .map(|part| vec![part])
            .collect();
        for (process, source) in &self.origins.recorded_again {
            if let Some(source) = sources.get(*source as usize) {
                all[process.0 as usize].push(source.part());
            }
        }
        all.iter_mut().for_each(|parts| parts.sort_unstable());
        all
    }

    /// Times of a merged trace in which nothing was recorded, in order.
    pub fn gaps(&self) -> Vec<(TimeNs, TimeNs)> {
        let mut parts: Vec<_> = self.origins.sources.iter().map(Source::part).collect();
        parts.sort_unstable();
        match parts.is_empty() {
            true => Vec::new(),
            false => between(&parts, TimeNs(0), self.stats.duration),
        }
    }

    /// The recording that a process of a merged trace is from; the first one, if there are several.
    pub fn source_of(&self, process: ProcessId) -> Option<&Source> {
        self.origins.sources.get(self.source_at(process)?)
    }

    /// The index of that recording.
    pub fn source_at(&self, process: ProcessId) -> Option<usize> {
        let mut n = 0_u64;
        self.origins.sources.iter().position(|source| {
            n += u64::from(source.n_processes);
            u64::from(process.0) < n
        })
    }

    /// The host that a process ran on.
    pub fn host_of(&self, process: ProcessId) -> &str {
        self.source_of(process)
            .map_or(&self.header.host, |source| &source.host)
    }
}

/// What parts, sorted, leave of `from..to`.
fn between(parts: &[(TimeNs, TimeNs)], from: TimeNs, to: TimeNs) -> Vec<(TimeNs, TimeNs)> {
    let mut gaps = Vec::new();
    let mut covered = from;
    for &(start, end) in parts.iter().chain([&(to, to)]) {
        if start.min(to) > covered {
            gaps.push((covered, start.min(to)));
        }
        covered = covered.max(end);
    }
    gaps
}

/// A whole trace in memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Everything but the spans.
    pub tables: Tables,
    /// Spans in the order of their ends.
    pub spans: Vec<Span>,
}
