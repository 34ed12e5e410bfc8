//! Turns what was observed of a thread at each tick into wall-clock weights.
//!
//! Exact facts are the thread's run time (`sum_exec_runtime`) and run-queue delay (`run_delay`);
//! both are settled by the kernel only at context switches and scheduler ticks, so a remainder is
//! carried from interval to interval with its sign. What the two do not explain is blocked time
//! if the thread can have been blocked, and steal or interrupt time if not. The weights of a
//! thread add up to the time it was observed. Pure: no clock, no I/O.
#![forbid(unsafe_code)]

mod cpu;
mod ledger;

pub use ledger::Ledger;
pub use wcprof_types::Sched;
use wcprof_types::ThreadState;

/// One thread at one tick. `K` names a place: a stack with its wait.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Observation<K> {
    /// When, ns of one monotonic clock.
    pub time: u64,
    /// Scheduler's view.
    pub sched: Sched,
    /// A count that changes whenever the thread is switched out (or in): equal counts in two
    /// blocked observations prove that it did not run in between.
    pub switches: u64,
    /// Count of switches into a wait; `None` when the engine cannot tell them from preemption.
    pub voluntary: Option<u64>,
    /// Run time so far, ns.
    pub run_ns: u64,
    /// Run-queue delay so far, ns.
    pub delay_ns: u64,
    /// Where it was blocked or preempted; `None` when running or unknown.
    pub place: Option<K>,
    /// Ticks this observation stands for (more than one after unchanged ticks were skipped).
    pub n_ticks: u32,
}

/// A timer sample: the thread was seen on a CPU.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TimerHit<K> {
    /// When, ns of the same clock.
    pub time: u64,
    /// Its stack.
    pub place: K,
    /// It was inside `ioctl(KVM_RUN)`.
    pub guest: bool,
}

/// A weighted stretch of a thread's time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Piece<K> {
    /// Begin of the interval the weight lies in, ns.
    pub start: u64,
    /// End of that interval, ns.
    pub end: u64,
    /// Wall-clock time, ns; at most `end - start`.
    pub weight: u64,
    /// Observations it stands on.
    pub n_samples: u32,
    /// What the thread did.
    pub state: ThreadState,
    /// Where; `None` when no stack was seen for this time.
    pub place: Option<K>,
}

#[cfg(test)]
mod tests;
