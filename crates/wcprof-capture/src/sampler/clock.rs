//! The tick clock: absolute deadlines, so that a late tick does not delay those after it.

use std::time::Duration;

use crate::sys::sleep_until;

/// Sleeps are cut to this, so that a stop request is seen soon at low rates.
const MAX_SLEEP_NS: u64 = 100_000_000;

/// CPU time of a tick that delays others too much, ns.
const SLOW_NS: u64 = 2_000_000;
/// A slow tick adds this, ns, and time takes it away: more than one a second is too much in the long run.
const SLOW_WEIGHT: u64 = 1_000_000_000;
/// Three in a row are too much: the first tick reads every stack.
const MAX_SLOWNESS: u64 = 2 * SLOW_WEIGHT + SLOW_WEIGHT / 2;

/// Deadlines at a fixed interval.
#[derive(Debug)]
pub(crate) struct TickClock {
    interval: u64,
    next: u64,
    /// Deadlines that were left out since the last tick.
    n_skipped: u64,
    /// Rises with each tick that takes long, falls with the others. [`MAX_SLOWNESS`] once it was reached.
    slowness: u64,
}

/// A tick that is due.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct DueTick {
    /// When it really began, ns.
    pub(crate) time: u64,
    /// More than half an interval after its deadline.
    pub(crate) late: bool,
    /// Deadlines that passed unserved.
    pub(crate) missed: u64,
}

impl TickClock {
    pub(crate) fn new(interval: Duration, now: u64) -> Self {
        Self {
            interval: (interval.as_nanos() as u64).max(1),
            next: now,
            n_skipped: 0,
            slowness: 0,
        }
    }

    /// Whether ticks take too long for real-time priority, since others wait meanwhile; true once. `cpu_ns`: CPU
    /// time of the last one.
    pub(crate) fn is_slow(&mut self, cpu_ns: u64) -> bool {
        if self.slowness == MAX_SLOWNESS {
            return false;
        }
        self.slowness = self.slowness.saturating_sub(self.interval);
        if cpu_ns > SLOW_NS {
            self.slowness = (self.slowness + SLOW_WEIGHT).min(MAX_SLOWNESS);
        }
        self.slowness == MAX_SLOWNESS
    }

    pub(crate) fn set_interval(&mut self, interval: Duration, now: u64) {
        *self = Self {
            n_skipped: self.n_skipped,
            slowness: self.slowness,
            ..Self::new(interval, now + interval.as_nanos() as u64)
        };
    }

    /// The next deadline.
    pub(crate) fn deadline(&self) -> u64 {
        self.next
    }

    /// Sleeps to the next deadline, or for a part of it: false then. `now` may be earlier than it is:
    /// the clock is not asked here.
    pub(crate) fn wait(&self, now: u64) -> bool {
        if now < self.next {
            let until = self.next.min(now + MAX_SLEEP_NS);
            sleep_until(until);
            return until == self.next;
        }
        true
    }

    /// The tick that begins `now`.
    pub(crate) fn due(&mut self, now: u64) -> DueTick {
        let behind = now.saturating_sub(self.next);
        let missed = behind / self.interval;
        self.next += (missed + 1) * self.interval;
        DueTick {
            time: now,
            late: behind > self.interval / 2,
            missed: missed + std::mem::take(&mut self.n_skipped),
        }
    }

    /// The work of a tick ended `now`. Deadlines that passed meanwhile by more than half an interval are left out and
    /// counted as missed: no tick follows a long one at once, and none the one after it.
    pub(crate) fn ended(&mut self, now: u64) {
        let behind = now.saturating_sub(self.next);
        let n_passed = (behind + self.interval / 2) / self.interval;
        self.n_skipped += n_passed;
        self.next += n_passed * self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check punctual, late and missed ticks, and that deadlines stay on the grid.
    #[test]
    fn grid() {
        let mut clock = TickClock::new(Duration::from_nanos(10), 100);
        let due = |time, late, missed| DueTick { time, late, missed };
        assert_eq!(clock.due(101), due(101, false, 0));
        assert_eq!(clock.due(117), due(117, true, 0));
        assert_eq!(clock.due(142), due(142, true, 2));
        assert_eq!(clock.next, 150);
    }

    /// Check that ticks which take long are not followed by a burst: two ticks are at least half an interval apart, and
    /// each deadline is a tick or a missed one.
    #[test]
    fn no_burst() {
        const INTERVAL: u64 = 100;
        for long in [0, 40, 99, 101, 149, 151, 199, 590, 2000, 2049, 2051] {
            let mut clock = TickClock::new(Duration::from_nanos(INTERVAL), 0);
            let (mut now, mut ticks, mut n_missed) = (0, Vec::new(), 0);
            while now < 10_000 {
                now = now.max(clock.deadline());
                let due = clock.due(now);
                ticks.push(due.time);
                n_missed += due.missed;
                // Each tenth tick takes long.
                now += if ticks.len().is_multiple_of(10) {
                    long
                } else {
                    5
                };
                clock.ended(now);
            }
            let apart = ticks.windows(2).map(|two| two[1] - two[0]).min();
            assert!(apart >= Some(INTERVAL / 2), "{long}: {ticks:?}");
            let last = ticks.last().unwrap();
            let n_due = (last + INTERVAL / 2) / INTERVAL + 1;
            assert_eq!(ticks.len() as u64 + n_missed, n_due, "{long}: {ticks:?}");
        }
    }

    /// Check that three slow ticks are too many, or two a second for a while, but not one a second, at any rate; that
    /// this is said once, also when the rate changes among them.
    #[test]
    fn slow_ticks() {
        let new = || TickClock::new(Duration::from_millis(10), 0);
        let mut clock = new();
        let (fast, slow) = (SLOW_NS, SLOW_NS + 1);
        assert_eq!([slow, fast, slow].map(|cpu| clock.is_slow(cpu)), [false; 3]);
        clock.set_interval(Duration::from_millis(20), 0);
        let seen = [slow, slow, fast, slow, slow, slow].map(|cpu| clock.is_slow(cpu));
        assert_eq!(seen, [true, false, false, false, false, false]);
        for ms in [1, 10, 50] {
            let first_too_many = |every: u64| {
                let mut clock = TickClock::new(Duration::from_millis(ms), 0);
                let cpu = |n: u64| match n.is_multiple_of(every) {
                    true => slow,
                    false => fast,
                };
                (1..=100_000).find(|&n| clock.is_slow(cpu(n)))
            };
            assert_eq!(first_too_many(1), Some(3));
            assert_eq!(first_too_many(500 / ms), Some(2000 / ms));
            assert_eq!(first_too_many(1000 / ms), None);
        }
    }
}
