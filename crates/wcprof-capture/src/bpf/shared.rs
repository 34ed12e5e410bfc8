//! What the BPF programs share with wcprof: the structs of `bpf/wcprof.h`, and bytes to thread records.

use std::ops::Range;

use thiserror::Error;
use wcprof_types::{Avma, ScratchRegs, StopCause, UserRegs};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most processes at once: the size of the programs' maps.
pub const MAX_TARGETS: usize = 1024;
/// Entries of the programs' tables, which are indexed by the low bits of a thread id.
pub(super) const SEEN_SLOTS: i32 = 1 << 16;

const STATUS_ON_CPU: u16 = 1;
const STATUS_IS_USER: u16 = 2;
const STATUS_HAS_QUEUE_TIME: u16 = 4;
const STATUS_TORN: u16 = 8;
const STATUS_FREEZER_TRAP: u16 = 16;

/// Bits of [`TaskRecord::state`] (`include/linux/sched.h`): interruptible, uninterruptible, stopped, traced, frozen (since
/// Linux 6.1).
const TASK_INTERRUPTIBLE: u32 = 0x1;
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_STOPPED: u32 = 0x4;
const TASK_TRACED: u32 = 0x8;
const TASK_FROZEN: u32 = 0x8000;

/// `PF_*` bits of [`TaskRecord::flags`] (`include/linux/sched.h`).
const PF_EXITING: u32 = 0x4;
/// An io_uring worker, and (since Linux 6.4) a vhost or io_uring worker: both have no user stack.
const PF_IO_WORKER: u32 = 0x10;
const PF_USER_WORKER: u32 = 0x4000;
/// Waits until a core dump is written, and writes it.
const PF_POSTCOREDUMP: u32 = 0x8;
const PF_DUMPCORE: u32 = 0x200;
/// In the refrigerator of the freezer; before Linux 6.1.
const PF_FROZEN: u32 = 0x1_0000;

/// One thread at one time. Copies of its user stack, then of its kernel stack, follow in the bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct TaskRecord {
    status: u16,
    /// `task_struct.exit_state`: 0 while alive.
    exit_state: u16,
    /// Thread and process id in wcprof's pid namespace; 0 when not visible there.
    pub(crate) tid: i32,
    pub(crate) tgid: i32,
    /// The same in the initial pid namespace.
    pub(crate) host_tid: i32,
    pub(crate) host_tgid: i32,
    /// `task_struct.__state`: 0 runs or is queued, any other value waits.
    state: u32,
    flags: u32,
    /// Changes with each `execve` of the process.
    pub(crate) exec_id: u32,
    /// When the record was made, `CLOCK_MONOTONIC` ns.
    pub(crate) time: u64,
    /// Voluntary and involuntary context switches.
    pub(crate) nvcsw: u64,
    pub(crate) nivcsw: u64,
    /// `se.sum_exec_runtime`, ns. The kernel settles it when the thread leaves its CPU, and at each
    /// timer tick.
    pub(crate) run_time: u64,
    /// Waits on run queues that are over, ns. This and the next three are 0 without
    /// `CONFIG_SCHED_INFO`.
    pub(crate) run_delay: u64,
    /// How often it was put on a CPU.
    pub(crate) pcount: u64,
    /// Since when it is queued, in the scheduler's clock (ns); 0 when it is not queued.
    pub(crate) last_queued: u64,
    /// When the reading thread was last put on its own CPU, in the scheduler's clock (ns): the
    /// nearest readable value to that clock's now, and never later than it.
    pub(crate) reader_arrival: u64,
    /// When the thread was created, `CLOCK_BOOTTIME` ns.
    pub(crate) start_boottime: u64,
    /// Registers at kernel entry. Of a thread on a CPU they are of its last entry, not of now.
    ip: u64,
    sp: u64,
    bp: u64,
    bx: u64,
    orig_ax: u64,
    ax: u64,
    /// The first three arguments of a system call.
    pub(crate) di: u64,
    pub(crate) si: u64,
    pub(crate) dx: u64,
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    /// Name, NUL-padded.
    pub(crate) comm: [u8; 16],
    /// Bytes of its stack that follow this record, the first `stack_below` of them below the stack pointer.
    stack_len: u32,
    /// Bytes of its kernel stack that follow those: return addresses, leaf first.
    pub(crate) kernel_len: u32,
    pub(crate) stack_below: u32,
    pad: u32,
}

impl TaskRecord {
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.status & STATUS_ON_CPU != 0
    }

    /// Off-CPU in a wait. A thread about to block but still on its CPU is not.
    pub(crate) fn is_blocked(&self) -> bool {
        self.state != 0 && !self.is_on_cpu() && self.exit_state == 0
    }

    /// Exiting or gone: its memory is, or may soon be, taken away.
    pub(crate) fn is_exiting(&self) -> bool {
        self.exit_state != 0 || self.flags & PF_EXITING != 0
    }

    /// A thread of the process that never runs user code.
    pub(crate) fn is_kernel_worker(&self) -> bool {
        self.flags & (PF_IO_WORKER | PF_USER_WORKER) != 0
    }

    /// Whether the kernel was built with `CONFIG_SCHED_INFO`.
    pub(crate) fn has_queue_times(&self) -> bool {
        self.status & STATUS_HAS_QUEUE_TIME != 0
    }

    /// The thread ran each time its stack was copied, so there is no copy.
    pub(crate) fn is_torn(&self) -> bool {
        self.status & STATUS_TORN != 0
    }

    /// What keeps it from running.
    pub(crate) fn stop(&self) -> Option<StopCause> {
        let waits = |bit| self.state & bit != 0;
        let has = |flag| self.flags & flag != 0;
        match () {
            // The thread that writes the dump also runs, but not the program, until it exits.
            () if has(PF_DUMPCORE) && !self.is_exiting() => Some(StopCause::CoreDump),
            () if !self.is_blocked() => None,
            () if has(PF_POSTCOREDUMP) && waits(TASK_UNINTERRUPTIBLE) => Some(StopCause::CoreDump),
            () if waits(TASK_FROZEN) || has(PF_FROZEN) => Some(StopCause::Freezer),
            () if waits(TASK_TRACED) => Some(StopCause::Debugger),
            () if waits(TASK_STOPPED) => Some(StopCause::Signal),
            // One that waits for a disk is frozen only after that.
            () if self.status & STATUS_FREEZER_TRAP != 0 && waits(TASK_INTERRUPTIBLE) => {
                Some(StopCause::Freezer)
            }
            () => None,
        }
    }

    /// Number of the system call that it is in; `None` outside of one (interrupt, page fault).
    pub(crate) fn syscall(&self) -> Option<u32> {
        u32::try_from(self.orig_ax.cast_signed()).ok()
    }

    /// The registers that unwinding starts from; `None` for a kernel thread.
    pub(crate) fn user_regs(&self) -> Option<UserRegs> {
        (self.status & STATUS_IS_USER != 0).then(|| UserRegs {
            ip: Avma(self.ip),
            sp: Avma(self.sp),
            bp: Some(self.bp),
            bx: Some(self.bx),
            // In a system call the kernel has overwritten `rax`, and the CPU `r11` (SYSCALL in Intel's manual, volume 2B).
            scratch: ScratchRegs::new([
                (0, self.syscall().is_none().then_some(self.ax)),
                (1, Some(self.dx)),
                (5, Some(self.di)),
                (8, Some(self.r8)),
                (9, Some(self.r9)),
                (10, Some(self.r10)),
                (11, self.syscall().is_none().then_some(self.r11)),
            ]),
        })
    }
}

/// Bytes that are no sequence of records.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[error("the BPF program's record at byte {0} is cut short")]
pub struct RecordError(usize);

/// The records from offset `at` on, each with the place of its stack copy in `bytes`. The kernel stack
/// comes right after that. Ends after the first error.
pub(crate) fn records(
    bytes: &[u8],
    mut at: usize,
) -> impl Iterator<Item = Result<(TaskRecord, Range<usize>), RecordError>> {
    std::iter::from_fn(move || {
        let start = at;
        let rest = bytes.get(start..).filter(|rest| !rest.is_empty())?;
        at = bytes.len();
        let Ok((task, rest)) = TaskRecord::read_from_prefix(rest) else {
            return Some(Err(RecordError(start)));
        };
        let stack = bytes.len() - rest.len()..;
        let stack = stack.start..stack.start + task.stack_len as usize;
        let end = stack.end + task.kernel_len as usize;
        if end > bytes.len() {
            return Some(Err(RecordError(start)));
        }
        at = end;
        Some(Ok((task, stack)))
    })
}

/// What is wanted of a thread's stack from now on.
#[derive(IntoBytes, Immutable, Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Want {
    /// The mapping of the stack; with the stack pointer elsewhere nothing is copied.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The thread in the initial pid namespace.
    pub(crate) host_tid: i32,
    /// Bytes from the stack pointer upward. Beyond [`MAX_STACK`] they are not copied.
    pub(crate) bytes: u32,
}

const PASS_THREADS: usize = 1 << 16;
/// The most bytes of one stack that the programs copy.
pub(crate) const MAX_STACK: usize = 1 << 18;
/// A mebibyte of records, and one more stack.
pub(super) const PASS_BYTES: usize = (1 << 20) + MAX_STACK;
const CALL_WORDS: usize = 8;

/// How far a pass over threads is, or what it came to.
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Copy, Clone, PartialEq, Eq, Debug, Default,
)]
#[repr(C)]
pub(crate) struct Pass {
    /// When it began, and when it ended, `CLOCK_MONOTONIC` ns. Iterators tell only its end.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(super) is_done: u32,
    /// Threads with a record.
    pub(super) n_records: u32,
    /// Unchanged threads without one.
    pub(crate) n_unlisted: u32,
    /// Threads that may exist and are not among these.
    pub(crate) n_missed: u32,
    /// Threads of the last process, by the kernel's own count. Iterators alone tell it.
    pub(super) n_threads: u32,
    /// Threads that must be looked at before they go on.
    pub(crate) n_urgent: u32,
    /// Timer samples that the filter had kept by then; iterators do not tell.
    pub(crate) n_kept: u32,
    is_listed: u32,
    n_changed: u32,
    next: u32,
    attempt: u32,
    pad: u32,
}

impl Pass {
    /// This pass and the one before over other threads, as one.
    pub(super) fn after(self, before: Self) -> Self {
        Self {
            n_records: before.n_records + self.n_records,
            n_unlisted: before.n_unlisted + self.n_unlisted,
            n_missed: before.n_missed + self.n_missed,
            ..self
        }
    }

    /// Threads seen.
    pub(crate) fn n_seen(&self) -> u32 {
        self.n_records + self.n_unlisted
    }
}

/// The memory that programs write their records into, see `bpf/wcprof.h`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Shared {
    pub(super) quiet_calls: [u64; CALL_WORDS],
    pub(super) generation: u32,
    pub(super) list: u32,
    pub(super) filter: u32,
    pub(super) host_tgid: i32,
    pub(super) len: u32,
    pub(super) kernel: u32,
    pub(super) copies: u32,
    pad: u32,
    pub(super) pass: Pass,
    changed: [i32; PASS_THREADS],
    records: [u8; PASS_BYTES],
}

impl Shared {
    /// The records at these offsets.
    pub(super) fn records(&self, range: Range<u32>) -> &[u8] {
        let range = range.start as usize..range.end as usize;
        self.records.get(range).unwrap_or_default()
    }

    /// Tells the programs in which system calls a blocked thread can be looked at later.
    pub(super) fn set_quiet_calls(&mut self, is_quiet: impl Fn(i64) -> bool) {
        for (call, word) in (0..).step_by(64).zip(&mut self.quiet_calls) {
            let quiet = (0..64).filter(|bit| is_quiet(call + bit));
            *word = quiet.fold(0, |word, bit| word | 1 << bit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use proptest::prelude::*;
    use zerocopy::FromZeros;

    use super::super::red_zones::{CpuRedZones, RedZone};
    use super::*;

    fn record(stack_len: u32, kernel_len: u32) -> TaskRecord {
        let mut record = TaskRecord::new_zeroed();
        (record.tid, record.stack_len, record.kernel_len) = (7, stack_len, kernel_len);
        record
    }

    /// Check that a record's stacks are the bytes after it, and that a stream cut anywhere gives the whole
    /// records before the cut and one error.
    #[test]
    fn cut_anywhere() {
        let (first, second) = (record(16, 8), record(0, 0));
        let mut bytes = vec![9; 3];
        bytes.extend(first.as_bytes());
        bytes.extend(1..=24);
        let ends = [3, bytes.len(), bytes.len() + size_of::<TaskRecord>()];
        bytes.extend(second.as_bytes());
        let stack = 3 + size_of::<TaskRecord>()..ends[1] - 8;
        assert_eq!(bytes[stack.clone()], (1..=16).collect::<Vec<u8>>());
        let whole = [(first, stack), (second, ends[2]..ends[2])];
        for cut in 3..=bytes.len() {
            let mut found: Vec<_> = records(&bytes[..cut], 3).collect();
            let n_whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
            if !ends.contains(&cut) {
                assert_eq!(found.pop(), Some(Err(RecordError(ends[n_whole]))));
            }
            let expected: Vec<_> = whole[..n_whole].iter().cloned().map(Ok).collect();
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    /// Check that a thread about to block but still on its CPU counts as running, and that a dead one is
    /// not blocked.
    #[test]
    fn states_are_exclusive() {
        let state = |state, status, exit_state| TaskRecord {
            state,
            status,
            exit_state,
            ..record(0, 0)
        };
        let about_to_block = state(1, STATUS_ON_CPU, 0);
        assert!(about_to_block.is_on_cpu() && !about_to_block.is_blocked());
        assert!(state(2, 0, 0).is_blocked() && !state(0, 0, 0).is_blocked());
        assert!(state(0x80, 0, 0x20).is_exiting() && !state(0x80, 0, 0x20).is_blocked());
    }

    /// Check that -1 in `orig_ax` is no system call, and that `rax` and `r11` are known then alone.
    #[test]
    fn system_calls() {
        let mut task = record(0, 0);
        assert_eq!(task.user_regs(), None);
        (task.status, task.ax, task.orig_ax) = (STATUS_IS_USER, 5, 202);
        (task.di, task.r8, task.r11) = (6, 7, 8);
        assert_eq!(task.syscall(), Some(202));
        let known = |task: &TaskRecord| {
            let scratch = task.user_regs().unwrap().scratch;
            [0, 5, 8, 11].map(|register| scratch.get(register))
        };
        assert_eq!(known(&task), [None, Some(6), Some(7), None]);
        task.orig_ax = u64::MAX;
        assert_eq!(task.syscall(), None);
        assert_eq!(known(&task), [Some(5), Some(6), Some(7), Some(8)]);
    }

    /// Check that the structs have the layout that the object's own type information gives.
    #[test]
    fn layouts() {
        macro_rules! layout {
            ($name:literal, $type:ident: $($field:ident)*) => {{
                let fields = vec![$((stringify!($field).to_owned(), offset_of!($type, $field))),*];
                let found = super::super::object::own_struct($name).expect("a struct of the object");
                assert_eq!(found, (size_of::<$type>(), fields), $name);
            }};
        }
        layout!("task_record", TaskRecord: status exit_state tid tgid host_tid host_tgid state flags
            exec_id time nvcsw nivcsw run_time run_delay pcount last_queued reader_arrival
            start_boottime ip sp bp bx orig_ax ax di si dx r8 r9 r10 r11 comm stack_len kernel_len stack_below pad);
        layout!("want", Want: start end host_tid bytes);
        layout!("red_zone", RedZone: ip sp host_tid pad bytes);
        layout!("cpu_red_zones", CpuRedZones: n zones);
        layout!("pass", Pass: begin end is_done n_records n_unlisted n_missed n_threads n_urgent
            n_kept is_listed n_changed next attempt pad);
        layout!("shared", Shared: quiet_calls generation list filter host_tgid len kernel copies pad pass
            changed records);
    }

    proptest! {
        /// Check that no bytes make the reader panic, run on, or give a stack outside of them.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..900)) {
            let mut at = 0;
            for (_, stack) in records(&bytes, 0).map_while(Result::ok) {
                prop_assert!(at < stack.start && stack.end <= bytes.len());
                at = stack.end;
            }
        }
    }
}
