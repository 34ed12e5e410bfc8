//! Registers and waits of one thread at one time.

use crate::Avma;
use crate::codes::codes;

/// User registers that unwinding starts from. `/proc/PID/task/TID/syscall` gives only `ip` and
/// `sp`; the others are unknown then.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct UserRegs {
    /// Instruction pointer.
    pub ip: Avma,
    /// Stack pointer.
    pub sp: Avma,
    /// `rbp`; `None` when the engine cannot read it.
    pub bp: Option<u64>,
    /// `rbx`, likewise.
    pub bx: Option<u64>,
    /// Registers that calls do not preserve.
    pub scratch: ScratchRegs,
}

/// Bytes below the stack pointer that a function may use without moving it (System V ABI for AMD64, section 3.2.2).
pub const RED_ZONE: usize = 128;

/// Registers that a call need not preserve, yet call frame information refers to: OpenSSL's AES-GCM
/// keeps the caller's stack pointer in `rax`, other assembler and prologues that probe the stack in `r8` to `r11`; glibc's
/// `vfork` keeps its return address in `rdi`, musl's in `rdx`. Each may be unknown.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ScratchRegs {
    /// A bit for each of [`SCRATCH_REGS`] that is known.
    known: u8,
    /// 0 where it is not.
    values: [u64; SCRATCH_REGS.len()],
}

/// `rax`, `rdx`, `rdi`, `r8` to `r11`, by DWARF register number (System V ABI for AMD64, figure 3.36).
const SCRATCH_REGS: [u16; 7] = [0, 1, 5, 8, 9, 10, 11];

impl ScratchRegs {
    /// Those of these registers that are known, each by its DWARF number. Others than `rax`, `rdx`, `rdi` and `r8` to `r11`
    /// are left out.
    pub fn new(registers: impl IntoIterator<Item = (u16, Option<u64>)>) -> Self {
        let mut regs = Self::default();
        for (number, value) in registers {
            let at = SCRATCH_REGS.iter().position(|known| *known == number);
            if let (Some(at), Some(value)) = (at, value) {
                regs.known |= 1 << at;
                regs.values[at] = value;
            }
        }
        regs
    }

    /// By DWARF register number.
    pub fn get(&self, number: u16) -> Option<u64> {
        let at = SCRATCH_REGS.iter().position(|known| *known == number)?;
        (self.known & 1 << at != 0).then(|| self.values[at])
    }
}

/// What a blocked thread waits in.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Wait {
    /// System call number (x86-64); `None` outside a system call (page fault, kernel thread).
    pub syscall: Option<u32>,
    /// The call's second argument where it is a small operation code: `futex_op` of `futex`,
    /// `request` of `ioctl`; else 0.
    pub op: u32,
    /// The descriptor the call works on, when its first argument is one.
    pub fd: Option<FdTarget>,
    /// The address of the word that a `futex` call waits on; `None` for other calls, and for
    /// recordings that do not hold it.
    pub futex: Option<Avma>,
    /// Innermost kernel function of the wait (`/proc/PID/task/TID/stack` or `wchan`), read for
    /// threads without a user stack; empty otherwise.
    pub kernel: String,
    /// What keeps the thread from running, whatever it waited for before; `None`: nothing.
    pub stop: Option<StopCause>,
}

/// Why the kernel does not let a thread run until somebody lets it go on.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum StopCause {
    /// A stop signal: `SIGSTOP`, `SIGTSTP`, `SIGTTIN`, `SIGTTOU` (state `T`).
    Signal,
    /// Its control group is frozen.
    Freezer,
    /// A tracer: a debugger, strace (state `t`).
    Debugger,
    /// The kernel writes a core dump of its process.
    CoreDump,
    /// One that only a newer wcprof knows, by its code in the trace.
    Other(u8),
}

codes!(StopCause, 4, [Signal, Freezer, Debugger, CoreDump]);

impl StopCause {
    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Freezer => "freezer",
            Self::Debugger => "debugger",
            Self::CoreDump => "core-dump",
            Self::Other(_) => "unknown",
        }
    }

    /// Who stops the thread, as in `stopped by a stop signal`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Signal => "by a stop signal (SIGSTOP or SIGTSTP)",
            Self::Freezer => "by the cgroup freezer",
            Self::Debugger => "by a debugger (ptrace)",
            Self::CoreDump => "by a core dump that is being written",
            Self::Other(_) => "for a reason that this wcprof does not know",
        }
    }
}

/// What a file descriptor refers to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FdTarget {
    /// Kind of file.
    pub kind: FdKind,
    /// Path of a file, device or directory; of a socket its addresses (`tcp 10.0.0.1:6800 ->
    /// 10.0.0.2:40112`) or `socket:[INODE]`; `pipe:[INODE]`; of an anonymous inode its kind
    /// (`[eventpoll]`). Empty when not known: it could not be read, or not while the thread
    /// provably was in this wait.
    pub path: String,
}

/// Kind of file behind a descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum FdKind {
    /// Regular file.
    Regular,
    /// Block device.
    Block,
    /// Character device.
    Char,
    /// Directory.
    Directory,
    /// Socket of any family.
    Socket,
    /// Pipe or FIFO.
    Pipe,
    /// Anonymous inode: eventfd, epoll, timerfd, signalfd, io_uring, kvm.
    Anon,
    /// It could not be read.
    Unknown,
    /// One that only a newer wcprof knows, by its code in the trace.
    Other(u8),
}

codes!(
    FdKind,
    8,
    [Regular, Block, Char, Directory, Socket, Pipe, Anon, Unknown]
);
