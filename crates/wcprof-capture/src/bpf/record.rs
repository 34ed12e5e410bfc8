//! One thread as the task iterator saw it.

use std::borrow::Cow;

use wcprof_types::{Avma, Pid, ScratchRegs, Tid, UserRegs};

/// One thread at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRecord {
    /// Thread id in wcprof's pid namespace; 0 when the thread is not visible there.
    pub tid: Tid,
    /// Process id in wcprof's pid namespace; 0 when the process is not visible there.
    pub pid: Pid,
    /// Thread id in the initial pid namespace.
    pub host_tid: i32,
    /// Process id in the initial pid namespace.
    pub host_pid: i32,
    /// When the record was made, `CLOCK_MONOTONIC` ns.
    pub time_ns: u64,
    /// When the thread was created, `CLOCK_BOOTTIME` ns: tells a reused tid from the old thread.
    pub start_boottime_ns: u64,
    /// Changes with each `execve` of the process.
    pub exec_id: u32,
    /// What the thread is doing.
    pub state: TaskState,
    /// Context switches and run time.
    pub counters: Counters,
    /// Run-queue times; `None` on kernels built without `CONFIG_SCHED_INFO`.
    pub queue: Option<Queue>,
    /// Registers saved at kernel entry; `None` without user memory (kernel thread, exited). Of a
    /// thread on a CPU they are of its last entry, not of now.
    pub regs: Option<TaskRegs>,
    /// Name, NUL-padded.
    pub comm: [u8; 16],
    /// The thread ran each time its stack was copied, so that there is none.
    pub torn: bool,
    /// Bytes of its kernel stack that follow the copy of its user stack: return addresses, leaf
    /// first, 8 bytes each.
    pub kernel_len: usize,
}

impl TaskRecord {
    /// The name up to its first NUL; bytes that are not UTF-8 become U+FFFD.
    pub fn name(&self) -> Cow<'_, str> {
        let len = self.comm.iter().position(|&b| b == 0).unwrap_or(16);
        String::from_utf8_lossy(self.comm.get(..len).unwrap_or_default())
    }
}

/// Scheduler state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaskState {
    /// `task_struct.__state`: 0 runs or is queued, any other value waits (`TASK_*` bits).
    pub state: u32,
    /// `task_struct.exit_state`: 0 while alive (`EXIT_*` bits).
    pub exit_state: u16,
    /// `task_struct.flags`.
    pub flags: TaskFlags,
    /// On a CPU at that time.
    pub on_cpu: bool,
    /// Has user memory: false for kernel threads and after exit.
    pub is_user: bool,
}

impl TaskState {
    /// On a CPU at that time.
    pub fn is_running(self) -> bool {
        self.on_cpu
    }

    /// Queued for a CPU.
    pub fn is_runnable(self) -> bool {
        self.state == 0 && !self.on_cpu && self.exit_state == 0
    }

    /// Off-CPU in a wait.
    pub fn is_blocked(self) -> bool {
        self.state != 0 && !self.on_cpu && self.exit_state == 0
    }

    /// Exiting or gone: its memory is, or may soon be, taken away.
    pub fn is_exiting(self) -> bool {
        self.exit_state != 0 || self.flags.has(TaskFlags::EXITING)
    }
}

/// `PF_*` bits of `task_struct.flags` (`include/linux/sched.h`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaskFlags(pub u32);

impl TaskFlags {
    /// `PF_EXITING`.
    pub const EXITING: Self = Self(0x0000_0004);
    /// `PF_IO_WORKER`: an io_uring worker, which has no user stack.
    pub const IO_WORKER: Self = Self(0x0000_0010);
    /// `PF_USER_WORKER` (since 6.4): a vhost or io_uring worker, which has no user stack.
    pub const USER_WORKER: Self = Self(0x0000_4000);
    /// `PF_KTHREAD`.
    pub const KTHREAD: Self = Self(0x0020_0000);

    /// Whether any bit of `bits` is set.
    pub fn has(self, bits: Self) -> bool {
        self.0 & bits.0 != 0
    }
}

/// Context switches and run time. The kernel settles them when the thread leaves its CPU, and on
/// the CPU at each timer tick.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Voluntary context switches.
    pub nvcsw: u64,
    /// Involuntary context switches.
    pub nivcsw: u64,
    /// `se.sum_exec_runtime`, ns.
    pub run_time_ns: u64,
}

impl Counters {
    /// All context switches: unchanged for a thread that never left its CPU or its wait.
    pub fn switches(self) -> u64 {
        self.nvcsw.wrapping_add(self.nivcsw)
    }
}

/// Times on the run queue (`task_struct.sched_info`).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Waits on run queues that are over, ns.
    pub run_delay_ns: u64,
    /// How often it was put on a CPU.
    pub n_runs: u64,
    /// Since when it is queued, in the scheduler's clock (ns); 0 when it is not queued.
    pub last_queued: u64,
    /// When the reading thread was last put on its own CPU, in the scheduler's clock (ns): the
    /// nearest readable value to that clock's now, and never later than it.
    pub reader_arrival: u64,
}

/// User registers saved at kernel entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TaskRegs {
    /// Instruction pointer.
    pub ip: Avma,
    /// Stack pointer.
    pub sp: Avma,
    /// `rbp`.
    pub bp: u64,
    /// The system call it entered by, if it did.
    pub syscall: Syscall,
}

impl TaskRegs {
    /// The registers that unwinding starts from.
    pub fn user_regs(self) -> UserRegs {
        UserRegs {
            ip: self.ip,
            sp: self.sp,
            bp: Some(self.bp),
            // In a system call the kernel has overwritten `rax`; no frame is based on it there.
            scratch: ScratchRegs {
                ax: self
                    .syscall
                    .number()
                    .is_none()
                    .then_some(self.syscall.ax as u64),
                ..ScratchRegs::default()
            },
        }
    }
}

/// System call registers (x86-64).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Syscall {
    /// Number, or -1 when the entry was not a system call (interrupt, page fault).
    pub orig_ax: i64,
    /// `-ENOSYS` (-38) until the call sets its result.
    pub ax: i64,
    /// First four arguments: rdi, rsi, rdx, r10.
    pub args: [u64; 4],
}

impl Syscall {
    /// The number; `None` outside of a system call.
    pub fn number(self) -> Option<u32> {
        u32::try_from(self.orig_ax).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(state: u32, on_cpu: bool, exit_state: u16) -> TaskState {
        TaskState {
            state,
            exit_state,
            flags: TaskFlags(0),
            on_cpu,
            is_user: true,
        }
    }

    /// Check that a thread about to block but still on its CPU counts as running.
    #[test]
    fn states_are_exclusive() {
        assert!(state(1, true, 0).is_running() && !state(1, true, 0).is_blocked());
        assert!(state(0, false, 0).is_runnable());
        assert!(state(2, false, 0).is_blocked() && !state(2, false, 0).is_runnable());
        let dead = state(0x80, false, 0x20);
        assert!(dead.is_exiting() && !dead.is_blocked() && !dead.is_runnable());
    }

    /// Check that -1 in `orig_ax` is no system call.
    #[test]
    fn syscall_number() {
        let call = |orig_ax| Syscall {
            orig_ax,
            ax: 0,
            args: [0; 4],
        };
        assert_eq!(call(-1).number(), None);
        assert_eq!(call(202).number(), Some(202));
    }
}
