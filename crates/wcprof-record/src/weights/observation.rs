//! What goes into a ledger, and what comes out.

use wcprof_types::{Sched, ThreadState};

/// One thread at one tick. `K` names a place: a stack with its wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Observation<K> {
    /// When, ns of one monotonic clock.
    pub(crate) time: u64,
    /// Scheduler's view.
    pub(crate) sched: Sched,
    /// Somebody keeps it from running; it is blocked then.
    pub(crate) stopped: bool,
    /// The kernel writes its process's core dump meanwhile: what it runs is no work of the program.
    pub(crate) dumps: bool,
    /// A count that changes whenever the thread is switched out (or in): equal counts in two
    /// blocked observations prove that it did not run in between.
    pub(crate) switches: u64,
    /// Count of switches into a wait; `None` when the engine cannot tell them from preemption.
    pub(crate) voluntary: Option<u64>,
    /// Run time so far, ns.
    pub(crate) run_ns: u64,
    /// Run-queue delay so far, ns.
    pub(crate) delay_ns: u64,
    /// The part of the run time that is a guest's, where no timer sample tells it, ns.
    pub(crate) guest_ns: u64,
    /// Where it was blocked or preempted; `None` when running or unknown.
    pub(crate) place: Option<K>,
    /// Ticks this observation stands for (more than one after unchanged ticks were skipped).
    pub(crate) n_ticks: u32,
}

/// A timer sample: the thread was seen on a CPU.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct TimerHit<K> {
    /// When, ns of the same clock.
    pub(crate) time: u64,
    /// Its stack.
    pub(crate) place: K,
    /// What it ran: on-CPU, a guest, or in the kernel for a guest.
    pub(crate) state: ThreadState,
}

/// A weighted stretch of a thread's time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece<K> {
    /// Begin of the interval the weight lies in, ns.
    pub(crate) start: u64,
    /// End of that interval, ns.
    pub(crate) end: u64,
    /// Wall-clock time, ns; at most `end - start`.
    pub(crate) weight: u64,
    /// Observations it stands on.
    pub(crate) n_samples: u32,
    /// What the thread did.
    pub(crate) state: ThreadState,
    /// Where; `None` when no stack was seen for this time.
    pub(crate) place: Option<K>,
}
