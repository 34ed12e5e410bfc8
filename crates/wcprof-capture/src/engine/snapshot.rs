//! What an engine says of the targets' threads at one tick, and what it can be asked.

use std::io;
use std::ops::Range;

use thiserror::Error;
use wcprof_types::{Pid, RED_ZONE, Sched, StopCause, Tid, UserRegs};

use crate::batch::{TargetId, ThreadCounters};
use crate::bpf::{BpfError, Want};
use wcprof_perf::PerfError;

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
    pub(crate) target: TargetId,
    pub(crate) tid: Tid,
    /// `CLOCK_MONOTONIC`, ns.
    pub(crate) time: u64,
    pub(crate) sched: Sched,
    pub(crate) counters: ThreadCounters,
    /// Times it was put on a CPU: read again after a stack copy, it proves the copy.
    pub(crate) n_runs: u64,
    /// User registers, and the system call; `None` while running, and of a worker, whose are another's.
    pub(crate) regs: Option<UserRegs>,
    pub(crate) syscall: Option<InSyscall>,
    /// What keeps it from running; `None` for a thread that is not blocked.
    pub(crate) stop: Option<StopCause>,
    /// What the engine copied of its stack.
    pub(crate) stack: SnapshotStack,
    /// Where in the snapshot's `stacks` its kernel stack is, if the engine gives any.
    pub(crate) kernel: Range<usize>,
    pub(crate) info: ThreadInfo,
}

/// What seldom changes while a thread lives.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ThreadInfo {
    /// Its start, `CLOCK_MONOTONIC` ns.
    pub(crate) started: u64,
    /// Its name; `None` when it is not known to have changed.
    pub(crate) comm: Option<Comm>,
    /// Changes when the process runs another program; 0 when the engine cannot tell.
    pub(crate) exec_id: u64,
    /// A thread of the process that never runs user code (io_uring worker, vhost): its stack is its kernel
    /// stack.
    pub(crate) kernel_side: bool,
    /// Its number in the initial pid namespace, when the engine can tell.
    pub(crate) host_tid: Option<i32>,
}

/// A thread's name as the kernel keeps it: padded with NUL.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Comm(pub(crate) [u8; 16]);

impl Comm {
    /// The first 16 bytes of `name`.
    pub(crate) fn new(name: &str) -> Self {
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self(comm)
    }

    /// Up to the first NUL; bytes that are not UTF-8 become U+FFFD.
    pub(crate) fn name(&self) -> String {
        let name = self.0.split(|&b| b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }
}

/// The stack that comes with a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SnapshotStack {
    /// None: it was not wanted yet, or the engine copies none.
    None,
    /// Bytes in the snapshot's `stacks`, proven not to be torn: the first `below` of them lie below the stack pointer.
    Copied { bytes: Range<usize>, below: usize },
    /// The thread ran each time its stack was copied.
    Torn,
}

/// Why a snapshot failed.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// `/proc` could not be read.
    #[error("failed to read threads of the target: {0}")]
    Io(#[from] io::Error),
    /// The BPF iterator failed.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// The timers of running threads could not be started.
    #[error(transparent)]
    Perf(#[from] PerfError),
}

/// All threads at one tick.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SnapshotSet {
    pub(crate) threads: Vec<ThreadSnapshot>,
    /// How many more threads there are that were blocked at the last snapshot and have not run since,
    /// and when that was seen: all that are not in `threads`, unless one has exited.
    pub(crate) unlisted: Option<(usize, u64)>,
    /// Threads that are not listed may still exist.
    pub(crate) incomplete: bool,
    /// So many new threads may be taken in at this tick. An engine whose own work with each is large leaves more for
    /// later ones, and counts them.
    pub(crate) max_new: usize,
    pub(crate) n_waiting: usize,
    /// Processes that are gone, as far as the engine has noticed.
    pub(crate) gone: Vec<TargetId>,
}

impl SnapshotSet {
    pub(crate) fn clear(&mut self) {
        self.threads.clear();
        self.unlisted = None;
        self.incomplete = false;
        self.n_waiting = 0;
        self.gone.clear();
    }

    /// Threads seen without being listed.
    pub(crate) fn n_unlisted(&self) -> usize {
        self.unlisted.map_or(0, |(n, _)| n)
    }
}

/// What is known at once of a snapshot that is read later.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldSnapshot {
    /// When it began, `CLOCK_MONOTONIC` ns.
    pub(crate) time: u64,
    /// It is to be read now: something in it has to be looked at while it is still so, or a thread was
    /// born or has exited.
    pub(crate) urgent: bool,
    /// Timer samples since the last snapshot that was read.
    pub(crate) n_samples: u32,
}

/// Takes snapshots of all threads.
pub(crate) trait Snapshots: Send {
    /// Reads every thread into `out` (cleared first), and appends stack copies to `stacks`.
    fn snapshot(
        &mut self,
        out: &mut SnapshotSet,
        stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError>;

    /// Takes a snapshot without unlisted threads that [`Self::take_held`] reads later. `None` when the
    /// engine cannot, or cannot now: what is held is to be read then, and [`Self::snapshot`] called.
    fn hold(&mut self) -> Result<Option<HeldSnapshot>, SnapshotError> {
        Ok(None)
    }

    /// Reads the oldest snapshot that is held, as [`Self::snapshot`] does.
    fn take_held(
        &mut self,
        _out: &mut SnapshotSet,
        _stacks: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        Ok(())
    }

    /// From now on snapshots have the threads of one more process.
    fn add_target(&mut self, target: TargetId, pid: Pid) -> Result<(), SnapshotError>;

    /// From now on they have not; its threads are forgotten one by one.
    fn remove_target(&mut self, target: TargetId, pid: Pid);

    /// The next snapshot has every thread, with its stack.
    fn want_full(&mut self) {}

    /// The next snapshot has this thread (its number in the initial pid namespace), with its stack.
    fn want_thread(&mut self, _host_tid: i32) {}

    /// The next snapshot lists unchanged threads, too.
    fn want_list(&mut self) {}

    /// Whether snapshots have kernel stacks of blocked threads.
    fn has_kernel_stacks(&self) -> bool {
        false
    }

    /// From now on copies of a thread's stack come with its snapshots, if the engine can.
    fn want_stack(&mut self, _want: &Want) {}

    /// The red zone of a timer sample of a thread (its number in the initial pid namespace), with these registers on this
    /// CPU, if the engine keeps them. To be asked for in the order of the CPU's samples.
    fn red_zone(&mut self, _cpu: u32, _host_tid: i32, _regs: &UserRegs) -> Option<[u8; RED_ZONE]> {
        None
    }

    /// How often the thread was put on a CPU by now; `None` when it has exited.
    fn n_runs(&mut self, tid: Tid) -> Option<u64>;

    /// Forgets a thread that has exited.
    fn forget(&mut self, tid: Tid);
}
