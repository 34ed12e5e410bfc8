//! Bounds the load: work arrives only while the process is below its share of the CPUs.

use std::io::stdin;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

/// CPU seconds a second.
const CPU_SHARE: f64 = 1.15;
/// Largest share of all CPUs, for small machines.
const MACHINE_SHARE: f64 = 0.6;
/// Most CPU seconds that are caught up after a time without work.
const MAX_CREDIT: f64 = 0.02;

/// The process's CPU clock against its allowance.
pub(crate) struct Pace {
    share: f64,
    credit: f64,
    wall: Instant,
    cpu: f64,
}

impl Pace {
    pub(crate) fn new() -> Result<Self> {
        let n_cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Self {
            share: CPU_SHARE.min(MACHINE_SHARE * n_cpus as f64),
            credit: 0.0,
            wall: Instant::now(),
            cpu: process_cpu_seconds()?,
        })
    }

    /// Whether the process used less CPU time than its share since it began.
    pub(crate) fn may_work(&mut self) -> Result<bool> {
        let (wall, cpu) = (Instant::now(), process_cpu_seconds()?);
        let elapsed = wall.duration_since(self.wall).as_secs_f64();
        self.credit = settle(self.credit, elapsed * self.share, cpu - self.cpu);
        (self.wall, self.cpu) = (wall, cpu);
        Ok(self.credit > 0.0)
    }
}

/// CPU seconds left: `allowed` is added, `used` is subtracted.
fn settle(credit: f64, allowed: f64, used: f64) -> f64 {
    (credit + allowed - used).min(MAX_CREDIT)
}

fn process_cpu_seconds() -> Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    let time = time.context("failed to read the CPU clock")?;
    Ok(Duration::from(time).as_secs_f64())
}

/// Wait for `interval`; true as soon as standard input is a pipe that nobody can write to.
pub(crate) fn parent_hung_up(interval: Duration) -> Result<bool> {
    let timeout = PollTimeout::try_from(interval).unwrap_or(PollTimeout::ZERO);
    let stdin = stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    match poll(&mut fds, timeout) {
        Ok(0) | Err(Errno::EINTR) => Ok(false),
        result => result
            .map(|_| true)
            .context("failed to wait for the parent"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that credit is capped after a lull and that a debt is paid before work goes on.
    #[test]
    fn credit() {
        assert_eq!(settle(0.0, 10.0, 0.0), MAX_CREDIT);
        let debt = settle(MAX_CREDIT, 0.0, 0.12);
        assert!((debt + 0.1).abs() < 1e-12);
        assert!(settle(debt, 0.05, 0.0) < 0.0);
    }
}
