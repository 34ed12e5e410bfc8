//! Clocks of the kernel to nanoseconds. A clock that cannot be read shows 0.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use wcprof_types::Pid;

/// `CLOCK_MONOTONIC`, ns: the clock of `bpf_ktime_get_ns` and of wcprof's perf samples.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// The time of day, ns since 1970 (UTC).
pub fn unix_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// CPU time of wcprof itself (all threads), ns.
pub fn own_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of processes that wcprof started and waited for, ns.
pub fn children_cpu_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN);
    usage.map_or(0, |usage| {
        let ns = |time: TimeVal| u64::try_from(time.num_nanoseconds()).unwrap_or(0);
        ns(usage.user_time()) + ns(usage.system_time())
    })
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of a process, exited ones included, ns.
///
/// # Errors
/// When there is no such process.
pub fn process_cpu_ns(pid: Pid) -> io::Result<u64> {
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.0))?;
    Ok(to_ns(clock_gettime(clock)?))
}

/// `CLOCK_BOOTTIME` − `CLOCK_MONOTONIC`, ns: how long the machine was suspended.
pub fn boot_offset_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME).saturating_sub(monotonic_ns())
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, to_ns)
}

fn to_ns(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
