//! Own CPU time to the rate of ticks: lowers it when wcprof would use more than its share of a core.

use std::time::Duration;

/// Own CPU use is read this often.
const ACCOUNT_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct CpuBudget {
    rate_hz: u32,
    max_cpu_percent: u32,
    /// When the own CPU time was last read, and what it was, ns.
    read_at: u64,
    cpu: u64,
}

impl CpuBudget {
    pub(super) fn new(rate_hz: u32, max_cpu_percent: u32) -> Self {
        Self {
            rate_hz: rate_hz.max(1),
            max_cpu_percent,
            read_at: 0,
            cpu: 0,
        }
    }

    /// Counts from now on.
    pub(super) fn begin(&mut self, now: u64, cpu: u64) {
        (self.read_at, self.cpu) = (now, cpu);
    }

    /// Between two ticks.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate_hz
    }

    /// Whether [`Self::check`] is to be called.
    pub(super) fn is_due(&self, now: u64) -> bool {
        now.saturating_sub(self.read_at) >= ACCOUNT_NS
    }

    /// The rate from now on, if wcprof used more than its share since the last call. `cpu`: its CPU time
    /// so far, ns.
    pub(super) fn check(&mut self, now: u64, cpu: u64) -> Option<u32> {
        let wall = now.saturating_sub(self.read_at).max(1);
        let used = cpu.saturating_sub(self.cpu) as f64 / wall as f64 * 100.0;
        self.begin(now, cpu);
        let budget = f64::from(self.max_cpu_percent);
        if used <= budget || self.rate_hz <= 1 {
            return None;
        }
        // Aim below the budget, or noise would lower the rate again and again.
        let rate = (f64::from(self.rate_hz) * budget / used * 0.9) as u32;
        self.rate_hz = rate.clamp(1, self.rate_hz - 1);
        Some(self.rate_hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the rate falls in proportion to the excess, stays within the budget, and never
    /// reaches 0.
    #[test]
    fn rates() {
        let mut budget = CpuBudget::new(100, 10);
        let second = ACCOUNT_NS;
        assert!(budget.is_due(second) && !budget.is_due(second - 1));
        assert_eq!(budget.check(second, second / 10), None);
        assert_eq!(budget.check(2 * second, second / 10 + second / 5), Some(45));
        assert_eq!(budget.interval(), Duration::from_secs(1) / 45);
        assert_eq!(budget.check(3 * second, 3 * second), Some(1));
        assert_eq!(budget.check(4 * second, 10 * second), None);
    }
}
