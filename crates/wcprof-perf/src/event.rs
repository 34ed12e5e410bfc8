//! Perf events: one function a system call, errno mapped to meaning.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use perf_event_open_sys::bindings::{self, perf_event_attr};
use perf_event_open_sys::ioctls;
use thiserror::Error;
use wcprof_host::procfs::read_file;
use wcprof_host::sys::{CAP_PERFMON, CAP_SYS_ADMIN, has_capability};

/// Registers in a sample: ax, bx, si, bp, sp, ip, r8 to r11
/// (`arch/x86/include/uapi/asm/perf_regs.h`), which the kernel writes in this order.
const REGS_USER: u64 = (1 << bindings::PERF_REG_X86_AX)
    | (1 << bindings::PERF_REG_X86_BX)
    | (1 << bindings::PERF_REG_X86_SI)
    | (1 << bindings::PERF_REG_X86_BP)
    | (1 << bindings::PERF_REG_X86_SP)
    | (1 << bindings::PERF_REG_X86_IP)
    | (1 << bindings::PERF_REG_X86_R8)
    | (1 << bindings::PERF_REG_X86_R9)
    | (1 << bindings::PERF_REG_X86_R10)
    | (1 << bindings::PERF_REG_X86_R11);

/// Frames taken of the kernel's part of a call chain.
const MAX_KERNEL_FRAMES: u16 = 64;

/// Why running threads cannot be sampled.
#[derive(Debug, Error)]
pub enum PerfError {
    /// EACCES or EPERM.
    #[error(
        "perf_event_open is not permitted (kernel.perf_event_paranoid is {paranoid}): {reason}"
    )]
    NotPermitted {
        /// Current value of the sysctl, or `unknown`.
        paranoid: String,
        /// The likely cause and what to do.
        reason: &'static str,
    },
    /// The thread has exited.
    #[error("the thread has exited")]
    NoSuchThread,
    /// The CPU is offline.
    #[error("the cpu is offline")]
    NoSuchCpu,
    /// EMFILE.
    #[error("too many open files: raise RLIMIT_NOFILE (ulimit -n)")]
    TooManyFiles,
    /// The ring's memory is over the limit.
    #[error(
        "no memory for the sample ring: raise RLIMIT_MEMLOCK (ulimit -l) or kernel.perf_event_mlock_kb, or run with CAP_IPC_LOCK"
    )]
    LockedMemory,
    /// The kernel has no perf events, or a container's seccomp profile hides them.
    #[error("perf_event_open is not available: {0}")]
    Unavailable(io::Error),
    /// Anything else.
    #[error("{call} failed: {source}")]
    Other {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// What a timer samples.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Timer {
    /// CPU time between two samples, ns.
    pub(crate) period_ns: u64,
    /// Bytes of stack copied with each sample.
    pub(crate) dump_bytes: u32,
    /// Time in the kernel, too.
    pub(crate) kernel: bool,
    /// The kernel's part of the call chain, too.
    pub(crate) kernel_stacks: bool,
}

/// An open perf event.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    /// Opens the event that `attr` describes, on thread `tid` or (-1) all, on `cpu` or (-1) all.
    pub(crate) fn open(attr: &mut perf_event_attr, tid: i32, cpu: i32) -> io::Result<Self> {
        Self::open_with(attr, (tid, cpu), None)
    }

    /// The same, together with an event that was opened before: they begin and end with that one.
    fn open_with(
        attr: &mut perf_event_attr,
        (tid, cpu): (i32, i32),
        leader: Option<&Self>,
    ) -> io::Result<Self> {
        attr.size = size_of::<perf_event_attr>() as u32;
        let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
        let leader = leader.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: `attr` is a live perf_event_attr whose `size` says how large it is; the kernel only
        // reads it and what it points to (and may write `size` on E2BIG).
        let fd = unsafe { perf_event_open_sys::perf_event_open(attr, tid, cpu, leader, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call returned a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens a disabled timer.
    pub(crate) fn open_timer(timer: &Timer, tid: i32, cpu: u32) -> Result<Self, PerfError> {
        let mut attr = perf_event_attr {
            type_: bindings::PERF_TYPE_SOFTWARE,
            config: u64::from(bindings::PERF_COUNT_SW_CPU_CLOCK),
            sample_type: u64::from(
                bindings::PERF_SAMPLE_TID
                    | bindings::PERF_SAMPLE_TIME
                    | bindings::PERF_SAMPLE_REGS_USER
                    | bindings::PERF_SAMPLE_STACK_USER,
            ),
            sample_regs_user: REGS_USER,
            sample_stack_user: timer.dump_bytes,
            read_format: u64::from(bindings::PERF_FORMAT_TOTAL_TIME_ENABLED),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = timer.period_ns;
        attr.set_disabled(1);
        attr.set_use_clockid(1);
        attr.set_exclude_kernel(u64::from(!timer.kernel));
        attr.set_exclude_hv(1);
        if timer.kernel_stacks {
            attr.sample_type |= u64::from(bindings::PERF_SAMPLE_CALLCHAIN);
            attr.set_exclude_callchain_user(1);
            attr.sample_max_stack = MAX_KERNEL_FRAMES;
        }
        Self::open(&mut attr, tid, cpu.cast_signed()).map_err(open_error)
    }

    /// Opens a tracepoint that is counted and gives no samples, for a thread. The first of several is disabled, and the others count
    /// while that one does.
    pub(crate) fn open_tracepoint(
        id: u64,
        tid: i32,
        leader: Option<&Self>,
    ) -> Result<Self, PerfError> {
        let mut attr = perf_event_attr {
            type_: bindings::PERF_TYPE_TRACEPOINT,
            config: id,
            ..Default::default()
        };
        attr.set_disabled(u64::from(leader.is_none()));
        Self::open_with(&mut attr, (tid, -1), leader).map_err(open_error)
    }

    pub(crate) fn enable(&self) -> Result<(), PerfError> {
        // SAFETY: an ioctl without memory arguments on a descriptor we own.
        check("PERF_EVENT_IOC_ENABLE", unsafe {
            ioctls::ENABLE(self.0.as_raw_fd(), 0)
        })
    }

    pub(crate) fn disable(&self) -> Result<(), PerfError> {
        // SAFETY: an ioctl without memory arguments on a descriptor we own.
        check("PERF_EVENT_IOC_DISABLE", unsafe {
            ioctls::DISABLE(self.0.as_raw_fd(), 0)
        })
    }

    pub(crate) fn set_period(&self, period_ns: u64) -> Result<(), PerfError> {
        // SAFETY: the kernel reads one u64, which lives across the call.
        check("PERF_EVENT_IOC_PERIOD", unsafe {
            ioctls::PERIOD(self.0.as_raw_fd(), period_ns)
        })
    }

    /// Sends samples to the ring of another event.
    pub(crate) fn set_output(&self, ring_event: RawFd) -> Result<(), PerfError> {
        // SAFETY: an ioctl that takes a descriptor number by value; the ring's event is open.
        check("PERF_EVENT_IOC_SET_OUTPUT", unsafe {
            ioctls::SET_OUTPUT(self.0.as_raw_fd(), ring_event)
        })
    }

    /// The program's return value 0 drops the sample (`kernel/events/core.c`, `bpf_overflow_handler`).
    pub(crate) fn set_filter(&self, program: BorrowedFd<'_>) -> Result<(), PerfError> {
        // SAFETY: an ioctl that takes a descriptor number by value; the program's is open.
        check("PERF_EVENT_IOC_SET_BPF", unsafe {
            ioctls::SET_BPF(self.0.as_raw_fd(), program.as_raw_fd() as u32)
        })
    }

    /// Only hits that a filter in the kernel's language lets through count.
    pub(crate) fn set_text_filter(&self, filter: &CStr) -> Result<(), PerfError> {
        // SAFETY: the kernel reads a text that ends with 0, which lives across the call.
        check("PERF_EVENT_IOC_SET_FILTER", unsafe {
            ioctls::SET_FILTER(self.0.as_raw_fd(), filter.as_ptr().cast_mut())
        })
    }

    /// Its identifier in samples.
    pub(crate) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the kernel writes one u64, which lives across the call.
        match unsafe { ioctls::ID(self.0.as_raw_fd(), &mut id) } {
            0.. => Ok(id),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// How often it happened while it was enabled, whether that gave a sample or not.
    pub(crate) fn count(&self) -> io::Result<u64> {
        let [count] = self.read_words()?;
        Ok(count)
    }

    /// For how long a timer has been enabled, ns. That of a CPU stands still for ever once the CPU went offline.
    pub(crate) fn enabled_ns(&self) -> io::Result<u64> {
        let [_, enabled] = self.read_words()?;
        Ok(enabled)
    }

    /// The event's values, as many as its `read_format` has.
    fn read_words<const N: usize>(&self) -> io::Result<[u64; N]> {
        let mut words = [[0; 8]; N];
        File::from(self.0.try_clone()?).read_exact(words.as_flattened_mut())?;
        Ok(words.map(u64::from_ne_bytes))
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn open_error(error: io::Error) -> PerfError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = read_file("/proc/sys/kernel/perf_event_paranoid")
                .map_or_else(|_| "unknown".into(), |s| s.trim().to_owned());
            let reason = why_refused(paranoid.parse().unwrap_or_default());
            PerfError::NotPermitted { paranoid, reason }
        }
        Some(libc::ESRCH) => PerfError::NoSuchThread,
        Some(libc::ENODEV) => PerfError::NoSuchCpu,
        Some(libc::EMFILE | libc::ENFILE) => PerfError::TooManyFiles,
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => PerfError::Unavailable(error),
        _ => PerfError::Other {
            call: "perf_event_open",
            source: error,
        },
    }
}

/// Whether `perf_event_open` gets past a seccomp filter: unknown flags are refused by the kernel
/// before anything else.
pub fn perf_event_open_reaches_kernel() -> bool {
    // SAFETY: the flags are invalid, so the kernel reads no memory and opens nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::null::<u8>(),
            0,
            -1,
            -1,
            libc::c_ulong::MAX,
        )
    };
    Errno::result(result).err() == Some(Errno::EINVAL)
}

/// Distinguished by a call that the kernel answers in a known way whatever the privileges are.
fn why_refused(paranoid: i32) -> &'static str {
    let is_admin = has_capability(CAP_SYS_ADMIN);
    let capable = has_capability(CAP_PERFMON) || is_admin;
    match (perf_event_open_reaches_kernel(), capable) {
        // A level that Linux itself does not have (`findings/debian-paranoid-3-refuses-perfmon.sh`).
        (true, true) if paranoid > 2 && !is_admin => {
            "CAP_PERFMON is not enough for Debian's kernels at that level: `sysctl kernel.perf_event_paranoid=2`, or CAP_SYS_ADMIN"
        }
        (false, _) => {
            "a seccomp filter of this container or service refuses it; allow it, or run wcprof on the host"
        }
        (true, false) => "it needs CAP_PERFMON, or CAP_SYS_ADMIN before Linux 5.8",
        (true, true) => {
            "it needs CAP_PERFMON outside of a user namespace, or a security module refuses it; run wcprof on the host"
        }
    }
}

fn check(call: &'static str, result: i32) -> Result<(), PerfError> {
    if result < 0 {
        let source = io::Error::last_os_error();
        return Err(PerfError::Other { call, source });
    }
    Ok(())
}
