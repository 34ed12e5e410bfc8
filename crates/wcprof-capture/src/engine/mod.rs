//! Engines: what takes one snapshot of all threads of the target.

mod bpf;
mod procfs;

use std::fmt;
use std::io;

use thiserror::Error;
use wcprof_types::{Sched, Tid, UserRegs};

pub(crate) use bpf::BpfSnapshots;
pub(crate) use procfs::ProcfsSnapshots;

/// How the target is observed, best first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EngineKind {
    /// BPF task iterator and perf events.
    Bpf,
    /// `/proc` and perf events.
    Procfs,
    /// `/proc` alone: running threads have no stack.
    ProcfsOnly,
}

impl EngineKind {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Bpf, Self::Procfs, Self::ProcfsOnly];

    /// Its name on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Procfs => "procfs",
            Self::ProcfsOnly => "procfs-only",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A system call that a thread is in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct InSyscall {
    /// `None` outside a system call.
    pub(crate) number: Option<u32>,
    pub(crate) args: [u64; 3],
}

/// One thread at one tick, as an engine reads it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ThreadSnapshot {
    pub(crate) tid: Tid,
    /// `CLOCK_MONOTONIC`, ns.
    pub(crate) time: u64,
    pub(crate) sched: Sched,
    /// Changes with each switch; see `wcprof_weights::Observation::switches`.
    pub(crate) switches: u64,
    pub(crate) voluntary: Option<u64>,
    pub(crate) run_ns: u64,
    pub(crate) delay_ns: u64,
    /// Times it was put on a CPU: read again after a stack copy, it proves the copy.
    pub(crate) n_runs: u64,
    /// User registers; `None` while running or without a user stack.
    pub(crate) regs: Option<UserRegs>,
    pub(crate) syscall: Option<InSyscall>,
    /// A thread of the process that never runs user code (io_uring worker, vhost).
    pub(crate) kernel_side: bool,
    /// Start, `CLOCK_MONOTONIC` ns.
    pub(crate) started: u64,
    /// Its name; `None` when it is not known to have changed.
    pub(crate) comm: Option<String>,
    /// Changes when the process runs another program; 0 when the engine cannot tell.
    pub(crate) exec_id: u64,
}

/// Why a snapshot failed.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The process is gone.
    #[error("the process has exited")]
    Gone,
    /// `/proc` could not be read.
    #[error("failed to read threads of the target: {0}")]
    Io(#[from] io::Error),
    /// Two files a thread are held open.
    #[error(
        "too many open files for the target's threads: raise RLIMIT_NOFILE (ulimit -n) above twice their number, or use --engine bpf"
    )]
    TooManyFiles,
    /// The BPF iterator failed.
    #[error(transparent)]
    Bpf(#[from] crate::bpf::BpfError),
    /// The timers of running threads could not be started.
    #[error(transparent)]
    Perf(#[from] crate::perf::PerfError),
}

/// All threads at one tick.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SnapshotSet {
    /// Threads that changed, or whose engine cannot tell.
    pub(crate) full: Vec<ThreadSnapshot>,
    /// Threads that were blocked at the last snapshot and have not run since, and when that was
    /// seen.
    pub(crate) unchanged: Vec<(Tid, u64)>,
    /// Threads that are in neither list may still exist.
    pub(crate) incomplete: bool,
}

/// Takes snapshots of all threads.
pub(crate) trait Snapshots: Send {
    /// Reads every thread into `out` (cleared first).
    fn snapshot(&mut self, out: &mut SnapshotSet) -> Result<(), SnapshotError>;

    /// The next snapshot has every thread in full.
    fn want_full(&mut self) {}

    /// How often the thread was put on a CPU by now; `None` when it has exited.
    fn n_runs(&mut self, tid: Tid) -> Option<u64>;

    /// Forgets a thread that has exited.
    fn forget(&mut self, tid: Tid);
}
