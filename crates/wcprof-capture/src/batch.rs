//! What the sampler hands on: observations of threads, timer samples and looks at locks, several ticks a
//! batch.

use std::ops::Range;
use std::sync::Arc;

use wcprof_types::lock::FutexWords;
use wcprof_types::{Avma, Sched, StopCause, ThreadState, Tid, UserRegs, Wait};

use crate::queue::Queued;
use wcprof_host::Target;

/// A process of a recording: 0 for the first target, then counting on, later ones too. A pid that is
/// used again is another one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TargetId(pub u32);

/// How a process's part of a recording ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TargetEnd {
    /// It has exited.
    Exited,
    /// It runs another program now.
    Exec,
}

/// A reading of a process's CPU clock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CpuClock {
    /// The process.
    pub target: TargetId,
    /// CPU time of its threads, exited ones included, ns.
    pub cpu_ns: u64,
    /// Since its threads were looked at, ns: what they ran meanwhile they did not show. 0 where none lives.
    pub unseen_ns: u64,
}

/// One tick of the targets, or a few. Byte ranges refer to `stacks`.
#[derive(Debug, Default)]
pub struct TickBatch {
    /// `CLOCK_MONOTONIC`, ns, when the last tick began.
    pub time: u64,
    /// Processes that joined, in the order of their ids; those that the recording began with are
    /// not among them.
    pub joined: Vec<(TargetId, Arc<Target>)>,
    /// Observations, each thread's in the order of time.
    pub threads: Vec<ThreadTick>,
    /// Samples of running threads since the last batch, in no particular order.
    pub timer_samples: Vec<TimerSample>,
    /// Looks at locks that threads wait for.
    pub locks: LockNotes,
    /// New threads and their numbers in the target's own pid namespace, where they differ.
    pub own_tids: Vec<(TargetId, Tid, Tid)>,
    /// Threads that have exited, in the order of time, and the observations of the batch that came before: the
    /// later ones of such a number are of another thread.
    pub exited: Vec<(usize, TargetId, Tid)>,
    /// Clocks of whole processes, read about once a second. None when only some threads are wanted.
    pub cpu_clocks: Vec<CpuClock>,
    /// Processes whose part is over, and when that was seen, `CLOCK_MONOTONIC` ns.
    pub ended: Vec<(TargetId, TargetEnd, u64)>,
    /// Copies of stack memory.
    pub stacks: Vec<u8>,
    /// Counts since the last batch.
    pub counts: TickCounts,
    /// Its part of what waits for the recorder.
    pub queued: Option<Queued>,
}

impl TickBatch {
    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.threads.iter().map(ThreadTick::text_bytes);
        self.stacks.len()
            + texts.sum::<usize>()
            + size_of_val(self.threads.as_slice())
            + size_of_val(self.timer_samples.as_slice())
            + size_of_val(self.locks.glances.as_slice())
    }
}

/// What went wrong, and how much was done.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct TickCounts {
    /// Ticks taken.
    pub n_ticks: u64,
    /// Ticks that began more than half an interval late.
    pub n_late: u64,
    /// Ticks left out since an earlier one had not ended in time.
    pub n_missed: u64,
    /// Threads observed, unchanged ones included.
    pub n_observations: u64,
    /// Stack copies dropped because the thread ran meanwhile, or not made for want of room or time.
    pub n_torn: u64,
    /// Samples of running threads that the kernel dropped.
    pub n_lost: u64,
    /// Batches dropped because the receiver fell behind.
    pub n_dropped_batches: u64,
    /// Looks at locks left out, since too many locks are waited for.
    pub n_locks_skipped: u64,
    /// Children of targets that could not be recorded.
    pub n_left_out: u64,
    /// All time of each thread up to the last tick is in this batch and in those before, also of threads that go on waiting.
    pub is_settled: bool,
    /// The rate from now on, when it changed.
    pub new_rate_hz: Option<u32>,
}

/// One thread at one tick.
#[derive(Clone, PartialEq, Debug)]
pub struct ThreadTick {
    /// Its process.
    pub target: TargetId,
    /// Whose.
    pub tid: Tid,
    /// When, `CLOCK_MONOTONIC` ns.
    pub time: u64,
    /// For a thread not seen before: from when on it is accounted (its birth, or the recording's
    /// first tick).
    pub since: Option<Since>,
    /// Its name, when new or changed.
    pub comm: Option<String>,
    /// Scheduler's view.
    pub sched: Sched,
    /// What keeps it from running; only when blocked.
    pub stop: Option<StopCause>,
    /// The kernel's counts of it.
    pub counters: ThreadCounters,
    /// Ticks this stands for.
    pub n_ticks: u32,
    /// What it waits in; only when blocked and not unchanged.
    pub wait: Option<Wait>,
    /// Its stack.
    pub stack: StackCopy,
    /// The kernel's part of it, if asked for and known; of a thread without a user stack whenever it is known.
    pub kernel: KernelStack,
}

impl ThreadTick {
    fn text_bytes(&self) -> usize {
        let comm = self.comm.as_ref().map_or(0, String::len);
        let wait = self.wait.as_ref().map_or(0, |wait| {
            wait.kernel.len() + wait.fd.as_ref().map_or(0, |fd| fd.path.len())
        });
        let kernel = match &self.kernel {
            KernelStack::Names(names) => names.iter().map(|n| n.len() + size_of::<String>()).sum(),
            _ => 0,
        };
        comm + wait + kernel
    }
}

/// What the kernel has counted of a thread since its birth.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadCounters {
    /// Changes with each context switch.
    pub switches: u64,
    /// Switches into a wait, when the engine can tell.
    pub voluntary: Option<u64>,
    /// Run time, ns.
    pub run_ns: u64,
    /// Run-queue delay, ns.
    pub delay_ns: u64,
    /// Run time in guests, where no timer sample tells it, ns; else 0.
    pub guest_ns: u64,
}

/// The kernel's part of a stack, leaf first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum KernelStack {
    /// Not asked for, or not known.
    #[default]
    None,
    /// Kernel addresses, 8 bytes each in the machine's byte order, in [`TickBatch::stacks`].
    Addresses {
        /// Where they are.
        bytes: Range<usize>,
        /// The first one is where an interrupt came; the others, and otherwise all, are return
        /// addresses.
        interrupted: bool,
    },
    /// Functions as `/proc/PID/task/TID/stack` names them: `nvme_queue_rq [nvme]`.
    Names(Vec<String>),
}

/// From when on a thread is accounted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Since {
    /// It was there at the recording's first tick.
    FirstTick,
    /// It was born after the tick before: `CLOCK_MONOTONIC` ns.
    Birth(u64),
}

/// A thread's user stack at a tick.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum StackCopy {
    /// The thread was running, or this engine cannot tell its registers.
    #[default]
    None,
    /// The same as at its last observation.
    Unchanged,
    /// Copied, and proven by the switch counts.
    Copied(StackBytes),
    /// It ran while its stack was copied: dropped.
    Torn,
    /// It has none (io_uring worker, vhost): [`ThreadTick::kernel`] is all of it.
    NoUserStack,
}

/// Registers and a copy of the stack from `below` bytes below `regs.sp` upward.
#[derive(Clone, PartialEq, Debug)]
pub struct StackBytes {
    /// Registers at kernel entry.
    pub regs: UserRegs,
    /// Bytes in [`TickBatch::stacks`].
    pub bytes: Range<usize>,
    /// Bytes of them that lie below the stack pointer: at most [`RED_ZONE`](wcprof_types::RED_ZONE).
    pub below: usize,
    /// First address that is not stack any more, where the mapping is known: memory between the
    /// copy's end and this exists but was not copied.
    pub limit: Option<Avma>,
}

/// A sample of a running thread.
#[derive(Clone, PartialEq, Debug)]
pub struct TimerSample {
    /// Its process.
    pub target: TargetId,
    /// Whose.
    pub tid: Tid,
    /// When, `CLOCK_MONOTONIC` ns.
    pub time: u64,
    /// What it ran: on-CPU, a guest, or in the kernel for a guest.
    pub state: ThreadState,
    /// Its stack; `None` for a thread without a user stack.
    pub stack: Option<StackBytes>,
    /// The kernel's part of it, if asked for; of a thread without a user stack always.
    pub kernel: KernelStack,
}

/// Looks at locks, and what came of the waits.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LockNotes {
    /// In the order of time.
    pub glances: Vec<LockGlance>,
    /// Threads that left a wait while its lock was looked at, and the tick's begin.
    pub moved: Vec<(TargetId, Tid, u64)>,
}

/// One look at a lock.
#[derive(Clone, PartialEq, Debug)]
pub struct LockGlance {
    /// Observations of the batch that came before it.
    pub after: usize,
    /// Whose.
    pub target: TargetId,
    /// Begin of its tick, `CLOCK_MONOTONIC` ns.
    pub time: u64,
    /// Begin of the tick before.
    pub since: u64,
    /// The word that is waited on.
    pub address: Avma,
    /// What was there.
    pub words: FutexWords,
    /// Live threads that the words name.
    pub owners: Vec<OwnerGlance>,
}

/// A thread that a lock's memory names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OwnerGlance {
    /// Which word.
    pub word: u8,
    /// The thread.
    pub tid: Tid,
    /// It was found in a new wait, and ran between that and the look. One that waited at the
    /// tick before, too, is not asked for: it would have to end its wait just then.
    pub moved: bool,
}
