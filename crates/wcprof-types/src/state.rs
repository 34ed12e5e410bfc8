//! What a thread was doing, and how its stack ended.

use crate::codes::codes;

/// What a thread did with a stretch of wall-clock time, as the kernel tells it. Whether a blocked
/// thread is idle, waits for a lock or for a disk is decided later, from its stack and its wait.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ThreadState {
    /// Ran on a CPU (user or kernel mode).
    OnCpu,
    /// Ran a guest's code, inside `ioctl(KVM_RUN)`.
    Guest,
    /// Waited on a run queue.
    Runnable,
    /// Off-CPU in a wait.
    Blocked,
    /// Neither ran, waited for a CPU nor was ever blocked: stolen by the hypervisor or spent in
    /// interrupts.
    StealIrq,
    /// Nobody knows: evidence of another tool that tells stacks and not states.
    Unknown,
    /// Ran in the kernel inside `ioctl(KVM_RUN)`, and not in the guest: it handled an exit, emulated
    /// instructions, or polled for the end of a halt.
    VmExit,
    /// One that only a newer wcprof knows, by its code in the trace.
    Other(u8),
}

codes!(
    ThreadState,
    7,
    [OnCpu, Guest, Runnable, Blocked, StealIrq, Unknown, VmExit]
);

/// What the scheduler did with a thread at the moment of an observation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sched {
    /// Was executing on a CPU.
    OnCpu,
    /// Was on a run queue, not executing.
    Queued {
        /// For how long so far, ns; `None` when the engine cannot tell.
        waited_ns: Option<u64>,
    },
    /// Executing or on a run queue: the engine cannot tell which.
    Running,
    /// Off-CPU in a wait.
    Blocked,
}

/// Why a stack has no further frames.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum StackEnd {
    /// The thread's (or coroutine's) first frame was reached.
    Root,
    /// No unwind information covers the address.
    NoUnwindInfo,
    /// The address is in no ELF file (JIT code, a runtime's image, a wild jump).
    NotInModule,
    /// Stack memory could not be read where the next frame should be.
    UnreadableStack,
    /// The copy of the stack ended before the stack did.
    CopyTooShort,
    /// The caller's frame would not lie above this one.
    DidNotAdvance,
    /// The frame limit was reached.
    TooManyFrames,
    /// The module's file could not be opened or has another build-id.
    ModuleUnreadable,
    /// The thread has no user stack (io_uring worker, vhost).
    NoUserStack,
    /// The thread was running and this engine cannot see a running thread's stack.
    #[default]
    NotSampled,
    /// The rest was in a part of the trace that is damaged.
    Lost,
    /// A uretprobe of another tool has put an address of its own where the return address was (`[uprobes]`; the kernel keeps
    /// the real one, `kernel/events/uprobes.c`).
    ReturnProbe,
    /// One that only a newer wcprof knows, by its code in the trace.
    Other(u8),
}

codes!(
    StackEnd,
    12,
    [
        Root,
        NoUnwindInfo,
        NotInModule,
        UnreadableStack,
        CopyTooShort,
        DidNotAdvance,
        TooManyFrames,
        ModuleUnreadable,
        NoUserStack,
        NotSampled,
        Lost,
        ReturnProbe
    ]
);

impl StackEnd {
    /// Whether frames are missing between the shown root-most frame and the thread's start.
    pub fn is_truncated(self) -> bool {
        !matches!(self, Self::Root | Self::NoUserStack | Self::NotSampled)
    }

    /// Short English name, as in `[truncated: no unwind info]`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::NoUnwindInfo => "no unwind info",
            Self::NotInModule => "not in a module",
            Self::UnreadableStack => "unreadable stack",
            Self::CopyTooShort => "stack copy too short",
            Self::DidNotAdvance => "did not advance",
            Self::TooManyFrames => "too many frames",
            Self::ModuleUnreadable => "module unreadable",
            Self::NoUserStack => "no user stack",
            Self::NotSampled => "not sampled",
            Self::Lost => "lost with a part of the trace",
            Self::ReturnProbe => "a uretprobe of another tool cuts stacks here",
            Self::Other(_) => "for a reason that this wcprof does not know",
        }
    }
}
