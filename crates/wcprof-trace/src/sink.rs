//! Where a recording goes while it runs: to a file ([`TraceWriter`]) or to a ring in memory
//! ([`Ring`](crate::ring::Ring)).

use std::io::Write;

use wcprof_types::{StackEnd, Tid, TimeNs, Wait};

use crate::error::TraceError;
use crate::model::{
    Frame, FrameId, LockLook, Module, ModuleId, NodeId, Process, ProcessEnd, ProcessId, Span,
    StackId, Stats, ThreadId, WaitId,
};
use crate::writer::TraceWriter;

/// What takes the parts of a recording, in the order in which they become known.
///
/// Methods do what those of [`TraceWriter`] of the same name do. A sink may forget what it no longer
/// needs, but only in [`sweep`](Self::sweep): whoever remembers ids asks afterwards which of them hold.
#[allow(missing_docs)]
pub trait TraceSink {
    fn begins_at(&mut self, unix_ns: u64);
    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError>;
    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError>;
    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError>;
    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError>;
    fn thread_name(&mut self, thread: ThreadId, seen: TimeNs, name: &str)
    -> Result<(), TraceError>;
    fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError>;
    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError>;
    fn intern_node(&mut self, caller: Option<NodeId>, frame: FrameId)
    -> Result<NodeId, TraceError>;
    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError>;
    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError>;
    fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError>;
    fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError>;
    fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError>;
    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError>;
    fn span(&mut self, span: &Span) -> Result<(), TraceError>;
    fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError>;
    fn flush(&mut self) -> Result<(), TraceError>;
    fn finish(&mut self, stats: &Stats) -> Result<(), TraceError>;
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

    /// Whether a [`sweep`](Self::sweep) is worth its time now.
    fn sweep_due(&self) -> bool {
        false
    }

    /// Forgets what neither spans that are kept nor `held` refer to.
    fn sweep(&mut self, _held: &[(Option<StackId>, Option<WaitId>)]) {}

    /// Whether an id that was given out still holds.
    fn holds_frame(&self, _frame: FrameId) -> bool {
        true
    }

    /// The same of a stack.
    fn holds_stack(&self, _stack: StackId) -> bool {
        true
    }

    /// The same of a process.
    fn holds_process(&self, _process: ProcessId) -> bool {
        true
    }
}

impl<W: Write> TraceSink for TraceWriter<W> {
    fn begins_at(&mut self, unix_ns: u64) {
        Self::begins_at(self, unix_ns);
    }

    fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        Self::add_process(self, process)
    }

    fn process_ended(&mut self, process: ProcessId, end: &ProcessEnd) -> Result<(), TraceError> {
        Self::process_ended(self, process, end)
    }

    fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        Self::add_module(self, module)
    }

    fn add_thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        seen: TimeNs,
        name: &str,
    ) -> Result<ThreadId, TraceError> {
        Self::add_thread(self, process, tid, seen, name)
    }

    fn thread_name(
        &mut self,
        thread: ThreadId,
        seen: TimeNs,
        name: &str,
    ) -> Result<(), TraceError> {
        Self::thread_name(self, thread, seen, name)
    }

    fn thread_seen(
        &mut self,
        thread: ThreadId,
        start: TimeNs,
        end: TimeNs,
        n_ticks: u64,
    ) -> Result<(), TraceError> {
        Self::thread_seen(self, thread, start, end, n_ticks)
    }

    fn intern_frame(&mut self, frame: Frame) -> Result<FrameId, TraceError> {
        Self::intern_frame(self, frame)
    }

    fn intern_node(
        &mut self,
        caller: Option<NodeId>,
        frame: FrameId,
    ) -> Result<NodeId, TraceError> {
        Self::intern_node(self, caller, frame)
    }

    fn intern_leaf(&mut self, leaf: Option<NodeId>, end: StackEnd) -> Result<StackId, TraceError> {
        Self::intern_leaf(self, leaf, end)
    }

    fn intern_wait(&mut self, wait: Wait) -> Result<WaitId, TraceError> {
        Self::intern_wait(self, wait)
    }

    fn lock_look(&mut self, look: &LockLook) -> Result<(), TraceError> {
        Self::lock_look(self, look)
    }

    fn locks_skipped(&mut self, n: u64) -> Result<(), TraceError> {
        Self::locks_skipped(self, n)
    }

    fn own_tid(&mut self, thread: ThreadId, own: Tid) -> Result<(), TraceError> {
        Self::own_tid(self, thread, own)
    }

    fn waiter_moved(&mut self, thread: ThreadId, tick: TimeNs) -> Result<(), TraceError> {
        Self::waiter_moved(self, thread, tick)
    }

    fn span(&mut self, span: &Span) -> Result<(), TraceError> {
        Self::span(self, span)
    }

    fn set_stats(&mut self, stats: &Stats) -> Result<(), TraceError> {
        Self::set_stats(self, stats)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        Self::flush(self)
    }

    fn finish(&mut self, stats: &Stats) -> Result<(), TraceError> {
        Self::finish(self, stats)
    }

    fn len_bytes(&self) -> u64 {
        Self::len_bytes(self)
    }
}
