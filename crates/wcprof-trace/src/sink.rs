//! Where a recording goes while it runs: to a file ([`TraceWriter`](crate::TraceWriter)) or to a
//! ring in memory ([`Ring`](crate::ring::Ring)).

use wcprof_types::{CounterName, StackEnd, Tid, TimeNs, Wait};

use crate::error::TraceError;
use crate::model::{
    AccountsReading, CounterId, CounterReading, Frame, FrameId, LockLook, Module, ModuleId, NodeId,
    Process, ProcessEnd, ProcessId, Span, StackId, Stats, ThreadId, WaitId,
};

/// What there is room for: some ten thousand more of each kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// Stacks that nothing was like.
    pub stacks: bool,
    /// Waits.
    pub waits: bool,
}

/// What takes the parts of a recording, in the order in which they become known.
///
/// A sink may forget what it no longer needs, but only in [`sweep`](Self::sweep): whoever remembers
/// ids asks afterwards which of them are still valid.
pub trait TraceSink {
    /// Sets when the recording began, ns since 1970 (UTC), in place of what the header says: time 0 of
    /// the trace is known only when sampling has begun. A writer ignores it after its first block.
    fn set_start(&mut self, unix_ns: u64);

    /// Adds a process.
    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError>;

    /// Notes that a process's part of the recording is over.
    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError>;

    /// Notes for how many processes of one program this one stands by now.
    fn process_folded(&mut self, process: ProcessId, n: u32) -> Result<(), TraceError>;

    /// Adds a module of a process.
    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError>;

    /// Adds a thread with the name (`comm`) that it had when it was first seen.
    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError>;

    /// Notes a thread's name; nothing when it is the one noted last.
    fn thread_name(&mut self, thread: ThreadId, seen: TimeNs, name: &str)
    -> Result<(), TraceError>;

    /// Notes what is known now of a thread: its first and last observation and the ticks that
    /// observed it. Replaces what was noted before.
    fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError>;

    /// The id of a wait that has one.
    fn known_wait(&self, wait: &Wait) -> Option<WaitId>;

    /// Of what many more can come. A recording ends where a table is full.
    fn room(&self) -> Room;

    /// The id of a frame; equal frames have one id.
    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError>;

    /// The id of a frame below its caller; `None` for the root-most frame.
    fn intern_node(&mut self, caller: Option<NodeId>, frame: FrameId)
    -> Result<NodeId, TraceError>;

    /// The id of a stack by its leaf.
    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError>;

    /// The id of a wait.
    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError>;

    /// Adds looks at a lock; a writer only counts those beyond
    /// [`MAX_LOOKS`](crate::limits::MAX_LOOKS).
    fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError>;

    /// Notes looks at locks that were left out.
    fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError>;

    /// Notes a thread's number in its own pid namespace.
    fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError>;

    /// Notes that a thread left its wait while the lock was looked at.
    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError>;

    /// The id of a counter's name.
    fn intern_counter(&mut self, name: &CounterName) -> Result<CounterId, TraceError>;

    /// Adds what a process counted; a writer leaves out what is beyond
    /// [`MAX_COUNTER_VALUES`](crate::limits::MAX_COUNTER_VALUES).
    fn counters(&mut self, reading: &CounterReading) -> Result<(), TraceError>;

    /// Adds a reading of the kernel's accounts; one that is too long, or beyond
    /// [`MAX_ACCOUNTS`](crate::limits::MAX_ACCOUNTS), is left out.
    fn accounts(&mut self, reading: AccountsReading) -> Result<(), TraceError>;

    /// Adds a span. A trace counts microseconds: what a weight has beyond whole ones is added to the
    /// thread's next span, so that sums are right to a microsecond. Traces are small when spans come
    /// in the order of their ends, and a thread's spans of one interval one after the other.
    fn span(&mut self, span: &Span) -> Result<(), TraceError>;

    /// Notes the counts so far, for a recording that does not end cleanly.
    fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError>;

    /// Writes what is pending. Call it about once a second.
    fn flush(&mut self) -> Result<(), TraceError>;

    /// Writes what is pending and the final counts, which end the recording: only names may
    /// follow. After an error it can be called again.
    fn finish(&mut self, stats: &Stats) -> Result<(), TraceError>;

    /// Bytes in the file or the ring.
    fn len_bytes(&self) -> u64;

    /// The id of a stack by its frames, root first.
    fn intern_stack(
        &mut self,
        root_first: impl IntoIterator<Item = FrameId>,
        end: StackEnd,
    ) -> Result<StackId, TraceError> {
        let mut leaf = None;
        for frame in root_first {
            leaf = Some(self.intern_node(leaf, frame)?);
        }
        self.intern_leaf(leaf, end)
    }

    /// No more will come of this thread.
    fn thread_ended(&mut self, _thread: ThreadId) {}

    /// No new frame will be of this module.
    fn module_unmapped(&mut self, _module: ModuleId) {}

    /// Whether a [`sweep`](Self::sweep) is worth its time now.
    fn sweep_due(&self) -> bool {
        false
    }

    /// Forgets what neither spans that are kept nor `held` refer to.
    fn sweep(&mut self, _held: &[(Option<StackId>, Option<WaitId>)]) {}

    /// Whether an id that was given out is still valid.
    fn holds_frame(&self, _frame: FrameId) -> bool {
        true
    }

    /// The same of a process.
    fn holds_process(&self, _process: ProcessId) -> bool {
        true
    }
}
