//! When a thread was queued, by the scheduler's clock, to how long it has been queued by now.
//!
//! No program can read the scheduler's clock (`rq_clock`, kernel/sched/sched.h). The latest value that a
//! BPF program sees is when its own thread was last put on a CPU. That may be long ago, where the
//! hypervisor took the CPU away since. So the offset to `CLOCK_MONOTONIC` is learned: the least that was
//! seen lately.

/// Arrivals that the least distance is taken from reach back one to two of these, ns. Only
/// `CLOCK_MONOTONIC` is slewed, by 500 us a second at the most (adjtimex(2)).
const WINDOW_NS: u64 = 2_000_000_000;

/// The distance of `CLOCK_MONOTONIC` from the scheduler's clock.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct QueueClock {
    /// Least distances of this window and of the one before it, ns; modulo 2^64.
    least: Option<u64>,
    before: Option<u64>,
    /// Begin of this window.
    begin: u64,
}

impl QueueClock {
    /// Learn from one observation at `time` (ns, `CLOCK_MONOTONIC`) by a reader that had `arrival` (ns,
    /// scheduler's clock) as its last arrival on a CPU.
    pub(crate) fn learn(&mut self, time: u64, arrival: u64) {
        if time.saturating_sub(self.begin) > WINDOW_NS {
            self.before = self.least.take();
            self.begin = time;
        }
        self.least = lesser(self.least, Some(time.wrapping_sub(arrival)));
    }

    /// How long a thread queued at `since` (ns, scheduler's clock; 0 if it is not) has waited at `time`, ns.
    /// Underestimates by the shortest delay seen between the reader getting its CPU and reading the clock.
    pub(crate) fn waited_ns(&self, time: u64, since: u64) -> u64 {
        match (since, lesser(self.least, self.before)) {
            (0, _) | (_, None) => 0,
            (since, Some(distance)) => {
                let waited = time.wrapping_sub(distance).wrapping_sub(since);
                // Queued after the observation began: a wait of less than nothing.
                u64::try_from(waited as i64).unwrap_or(0)
            }
        }
    }
}

/// The lesser of two distances, which are numbers with a sign.
fn lesser(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a as i64).min(b as i64) as u64),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a reader robbed of its CPU after its arrival knows the whole wait, whichever clock is
    /// ahead.
    #[test]
    fn robbed_reader() {
        for ahead in [0, 5_000_000_000, 5_000_000_000_u64.wrapping_neg()] {
            let sched = |ns: u64| (10_000_000_000 + ns).wrapping_add(ahead);
            let at = |ns: u64| 10_000_000_000 + ns;
            let mut clock = QueueClock::default();
            clock.learn(at(30_000), sched(0));
            // It arrives at 10 ms and looks at 53 ms.
            clock.learn(at(53_000_000), sched(10_000_000));
            assert_eq!(
                clock.waited_ns(at(53_000_000), sched(3_000_000)),
                49_970_000
            );
            assert_eq!(clock.waited_ns(at(53_000_000), sched(54_000_000)), 0);
            assert_eq!(clock.waited_ns(at(53_000_000), 0), 0);
        }
    }

    /// Check that a distance that was right is forgotten when the clocks drift apart.
    #[test]
    fn drift() {
        let mut clock = QueueClock::default();
        for tick in 0..1000_u64 {
            let arrival = tick * 10_000_000;
            let time = arrival + 20_000 + tick * 5_000;
            clock.learn(time, arrival);
            let waited = clock.waited_ns(time, arrival.saturating_sub(1_000_000).max(1));
            assert!(
                tick == 0 || (1_000_000..3_100_000).contains(&waited),
                "{tick}: {waited}"
            );
        }
    }
}
