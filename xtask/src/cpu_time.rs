//! CPU time of other processes, from their clocks.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// CPU time of a process so far, of all its threads, also those that have ended.
///
/// # Errors
/// When the process has ended and was waited for.
pub fn cpu_time(pid: i32) -> Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid));
    let time = clock.and_then(clock_gettime);
    Ok(time
        .with_context(|| format!("failed to read the CPU clock of process {pid}"))?
        .into())
}

/// CPU time of all child processes that have ended and were waited for.
pub fn children_cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("failed to read the usage")?;
    let duration = |time: TimeVal| {
        Duration::from_micros((time.tv_sec() * 1_000_000 + time.tv_usec()).unsigned_abs())
    };
    Ok(duration(usage.user_time()) + duration(usage.system_time()))
}
