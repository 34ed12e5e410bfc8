//! System calls of sampling that no crate wraps: one function each, errno kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::Pid;
use wcprof_host::open::closing_cpu_ns;
use wcprof_host::work_cpu_ns;

/// The word at an offset; beyond the end it reads as 0.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    let rest = bytes.get(at..);
    rest.and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_ne_bytes(*b))
}

/// CPU time that threads took which record what samplers send, ns.
static RECORDING_NS: AtomicU64 = AtomicU64::new(0);

/// Counts CPU time of a thread that records: it is a part of what sampling costs. That of looking
/// up names or drawing meanwhile is not, and must not lower the rate.
pub fn add_recording_cpu(ns: u64) {
    RECORDING_NS.fetch_add(ns, Ordering::Relaxed);
}

/// CPU time of work that comes in lumps at any rate, ns.
static LUMPS_NS: AtomicU64 = AtomicU64::new(0);

/// Counts CPU time of work that is done once in a while for a recording, and costs the same at any rate: it leaves less
/// of the limit to sampling, spread over minutes.
pub fn add_lump_cpu(ns: u64) {
    LUMPS_NS.fetch_add(ns, Ordering::Relaxed);
}

/// CPU time of work that goes on beside the ticks, and costs the same at any rate, ns.
static STEADY_NS: AtomicU64 = AtomicU64::new(0);

/// Counts CPU time of work that goes on beside the ticks at any rate of these: it leaves less of the limit to them, at once.
pub fn add_steady_cpu(ns: u64) {
    STEADY_NS.fetch_add(ns, Ordering::Relaxed);
}

/// Own CPU time so far, ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct OwnCpu {
    /// Of ticks, and of recording what they saw: fewer ticks take less.
    pub(crate) ticks: u64,
    /// Of work that comes in lumps, and is the same at any rate.
    pub(crate) lumps: u64,
    /// Of work that goes on all the time, and is the same at any rate.
    pub(crate) steady: u64,
}

/// CPU time that is limited so far, for the thread that samples.
pub(crate) fn limited_cpu() -> OwnCpu {
    OwnCpu {
        ticks: work_cpu_ns() + RECORDING_NS.load(Ordering::Relaxed),
        lumps: closing_cpu_ns() + LUMPS_NS.load(Ordering::Relaxed),
        steady: STEADY_NS.load(Ordering::Relaxed),
    }
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
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    if set_scheduler(Pid::from_raw(0), policy, 1) {
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

/// Takes the calling thread's real-time priority away; false when it has none.
pub(crate) fn become_ordinary() -> bool {
    // SAFETY: no memory arguments; 0 is the calling thread.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) } as libc::c_int;
    let is_real_time = policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_FIFO;
    // To lower a priority is always permitted, but not to take this flag back (sched_setscheduler(2)).
    let ordinary = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
    is_real_time && set_scheduler(Pid::from_raw(0), ordinary, 0)
}

/// Lets a thread (the first one of a process that has no others yet) run only when nobody else wants its CPU;
/// whether that was permitted.
pub fn give_way(thread: Pid) -> bool {
    set_scheduler(thread, libc::SCHED_IDLE, 0)
}

/// Sets the scheduling of a thread, 0 for the calling one; whether that was permitted.
fn set_scheduler(thread: Pid, policy: libc::c_int, priority: libc::c_int) -> bool {
    let thread = thread.as_raw();
    // By the system call: the function of musl refuses always, since it would be about a whole process.
    // SAFETY: the kernel only reads its `sched_param`, which is one int.
    let set = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread,
            policy,
            &raw const priority,
        )
    };
    set == 0
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
    nix::sys::uio::process_vm_readv(Pid::this(), &mut [], &[]).is_ok()
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

/// Sleeps until `CLOCK_MONOTONIC` shows `deadline_ns`, or a signal comes.
pub(crate) fn sleep_until(deadline_ns: u64) {
    let deadline = TimeSpec::from_duration(Duration::from_nanos(deadline_ns));
    let flags = ClockNanosleepFlags::TIMER_ABSTIME;
    // Too early a return (EINTR) only makes a tick early; the caller looks at the clock.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, flags, &deadline);
}
