//! System calls without a safe wrapper elsewhere: one function each, errno kept.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use wcprof_types::Pid;

use crate::procfs::parse_status;

/// The word at an offset; beyond the end it reads as 0.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let rest = bytes.get(at..);
    rest.and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// A descriptor of a process: becomes readable when the whole thread group has exited.
pub(crate) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: no memory arguments.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a new descriptor (it fits an int) that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// CPU time of a whole process, ns.
pub(crate) fn process_cpu_ns(pid: Pid) -> io::Result<u64> {
    let clock = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.0))?;
    Ok(to_ns(clock_gettime(clock)?))
}

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns` and of our perf samples.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, to_ns)
}

/// CPU time of wcprof itself (all threads), ns.
pub fn own_cpu_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(0, to_ns)
}

/// Maps the first `len` bytes of a file where the kernel likes. `protection` and `flags` are those of
/// `mmap(2)`, without `MAP_FIXED`. The caller unmaps them.
pub(crate) fn map(
    file: &impl AsRawFd,
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
) -> io::Result<NonNull<u8>> {
    debug_assert_eq!(flags & libc::MAP_FIXED, 0);
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
    match NonNull::new(start.cast::<u8>()) {
        Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(start),
        _ => Err(io::Error::last_os_error()),
    }
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, to_ns)
}

/// CPU time that threads took which record what samplers send, ns.
static RECORDING_NS: AtomicU64 = AtomicU64::new(0);

/// Counts CPU time of a thread that records: it is a part of what sampling costs. That of looking
/// up names or drawing meanwhile is not, and must not lower the rate.
pub fn add_recording_cpu(ns: u64) {
    RECORDING_NS.fetch_add(ns, Ordering::Relaxed);
}

/// CPU time of sampling and recording, for the thread that samples, ns.
pub(crate) fn sampling_cpu_ns() -> u64 {
    thread_cpu_ns() + RECORDING_NS.load(Ordering::Relaxed)
}

fn to_ns(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

/// How punctual the calling thread will be on a saturated machine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Punctuality {
    /// `SCHED_FIFO` priority 1.
    RealTime,
    /// `SCHED_OTHER`, nice −20 (or the least permitted).
    Nice(i32),
    /// No privilege: ticks will be late when all CPUs are busy.
    Normal,
}

/// Raises the calling thread's priority as far as permitted. It runs for microseconds a tick, so
/// it may preempt others; threads and processes that it starts do not inherit the priority.
pub fn become_punctual() -> Punctuality {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is a live sched_param that the kernel only reads; 0 is the calling thread.
    let set = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param)
    };
    if set == 0 {
        return Punctuality::RealTime;
    }
    for nice in [-20, -10, -5] {
        // SAFETY: no memory arguments; 0 is the calling thread (nice is per thread on Linux).
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0 {
            return Punctuality::Nice(nice);
        }
    }
    Punctuality::Normal
}

pub(crate) const CAP_SYS_PTRACE: u32 = 19;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const CAP_PERFMON: u32 = 38;
pub(crate) const CAP_BPF: u32 = 39;

/// Whether wcprof holds a capability in its own user namespace.
pub(crate) fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_status(&status).cap_eff >> number & 1 == 1
}

/// Whether `perf_event_open` gets past a seccomp filter: unknown flags are refused by the kernel
/// before anything else.
pub(crate) fn perf_event_open_reaches_kernel() -> bool {
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

/// Whether `bpf` gets past a seccomp filter; `None` when the kernel itself may have refused it.
pub(crate) fn bpf_reaches_kernel() -> Option<bool> {
    // SAFETY: a size beyond a page is refused before the (null) attributes are read.
    let result = unsafe { libc::syscall(libc::SYS_bpf, 0, std::ptr::null::<u8>(), 1_usize << 20) };
    match Errno::result(result) {
        Err(Errno::E2BIG) | Ok(_) => Some(true),
        // Before Linux 6.4 also the answer to a process without CAP_BPF.
        Err(Errno::EPERM) => None,
        Err(_) => Some(false),
    }
}

/// Whether `process_vm_readv` gets past a seccomp filter: reading nothing of oneself succeeds.
pub(crate) fn process_vm_readv_reaches_kernel() -> bool {
    nix::sys::uio::process_vm_readv(nix::unistd::Pid::this(), &mut [], &[]).is_ok()
}

/// Raises the soft limit of open files to the hard one; the procfs engine holds two files a
/// thread. Returns the limit in force.
pub fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Type bits of what a path leads to, from what the kernel knows already: a network file system is
/// not asked (`AT_STATX_DONT_SYNC`).
pub(crate) fn file_type(path: &std::ffi::CStr) -> Option<libc::mode_t> {
    let mut stat = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: `path` ends with NUL, `stat` is large enough for the kernel to write a statx into.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            stat.as_mut_ptr(),
        )
    };
    // SAFETY: zeroed bytes are a valid statx, and the call has overwritten some of them at most.
    let stat = unsafe { stat.assume_init() };
    (done == 0).then(|| libc::mode_t::from(stat.stx_mode) & libc::S_IFMT)
}

/// `CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`, ns: how long the machine was suspended.
pub(crate) fn boot_offset_ns() -> u64 {
    let boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, to_ns);
    boot.saturating_sub(monotonic_ns())
}

/// Sleeps until `CLOCK_MONOTONIC` shows `deadline_ns`, or a signal comes.
pub(crate) fn sleep_until(deadline_ns: u64) {
    let deadline = TimeSpec::from_duration(Duration::from_nanos(deadline_ns));
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    // Too early a return (EINTR) only makes a tick early; the caller looks at the clock.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &deadline);
}
