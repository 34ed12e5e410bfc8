//! Wall-clock and CPU clock of this thread to the length of a stretch, and whether it ran throughout.

use std::time::Instant;

use nix::time::{ClockId, clock_gettime};

use super::error::MeasureError;
use super::statistics::median;

/// Nanoseconds of CPU time that this thread used.
pub(crate) fn thread_cpu_ns() -> Result<f64, MeasureError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Both clocks at the beginning of a stretch. A stretch whose CPU time is not its wall-clock time was
/// preempted, or the host took the CPU away. CPU time alone can not be used: in a virtual machine it can
/// be too short, since what the host took is subtracted late, from another stretch.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stopwatch {
    cpu_ns: f64,
    wall: Instant,
}

impl Stopwatch {
    pub(super) fn start() -> Result<Self, MeasureError> {
        let wall = Instant::now();
        let cpu_ns = thread_cpu_ns()?;
        Ok(Self { cpu_ns, wall })
    }

    /// Nanoseconds of the stretch, and whether the thread ran all the time and the CPU time is right.
    pub(super) fn stop(self) -> Result<(f64, bool), MeasureError> {
        let cpu_ns = thread_cpu_ns()? - self.cpu_ns;
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        Ok((wall_ns, ran_throughout(wall_ns, cpu_ns)))
    }
}

fn ran_throughout(wall_ns: f64, cpu_ns: f64) -> bool {
    (wall_ns - cpu_ns).abs() <= 0.01 * wall_ns + 1000.0
}

/// Nanoseconds that the clocks show for a stretch without work.
pub(super) fn clock_cost() -> Result<f64, MeasureError> {
    let mut costs = Vec::with_capacity(31);
    for _ in 0..31 {
        costs.push(Stopwatch::start()?.stop()?.0);
    }
    Ok(median(&costs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a stretch counts only when both clocks agree within a percent and a microsecond.
    #[test]
    fn agreement() {
        let ran = ran_throughout;
        assert!(ran(100_000.0, 100_000.0) && ran(100_000.0, 98_100.0) && ran(0.0, 900.0));
        assert!(!ran(100_000.0, 97_000.0) && !ran(100_000.0, 103_000.0));
    }
}
