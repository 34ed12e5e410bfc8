//! Two clocks to intervals: whole multiples of their length since 1970, as times of the recording.

use std::time::Duration;

use crate::live::SETTLED_NS;

/// Two clocks that are read one after the other show another difference each time: less than this is none, ns.
const JITTER_NS: u64 = 1_000_000;

/// An interval that is shorter is none, ns: a recording that ends just after one, or a busy machine that let much time
/// pass between the readings of the two clocks.
pub(super) const MIN_NS: u64 = 50_000_000;

/// A part of a recording, by `CLOCK_MONOTONIC`, ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The intervals of a recording.
#[derive(Debug)]
pub(super) struct Intervals {
    length: u64,
    /// Where the interval begins that is under way, and where it ends; `None` before the first batch.
    current: Option<Interval>,
}

impl Intervals {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length: u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1),
            current: None,
        }
    }

    /// The interval that is complete at `time`; `now` and `unix` are the same moment by both clocks, ns. A change of the
    /// clock of the day makes one interval shorter or longer.
    pub(super) fn complete(&mut self, time: u64, (now, unix): (u64, u64)) -> Option<Interval> {
        let Some(current) = self.current else {
            self.current = Some(Interval {
                from: time,
                to: self.next_end((now, unix), time),
            });
            return None;
        };
        if time < current.to.saturating_add(SETTLED_NS) {
            return None;
        }
        self.current = Some(Interval {
            from: current.to,
            to: self.next_end((now, unix), current.to),
        });
        Some(current)
    }

    /// Lets the interval that is under way begin where one did that nobody could take.
    pub(super) fn join(&mut self, missed: Interval) {
        if let Some(current) = &mut self.current {
            current.from = missed.from;
        }
    }

    /// Where the interval that is under way begins.
    pub(super) fn begin(&self) -> Option<u64> {
        self.current.map(|current| current.from)
    }

    /// The first whole multiple of the length that lies after `after`, and not so close that nothing would be between.
    fn next_end(&self, (now, unix): (u64, u64), after: u64) -> u64 {
        let at = i128::from(unix) + i128::from(after) - i128::from(now);
        let at = u64::try_from(at.max(0)).unwrap_or(u64::MAX);
        let whole = at.saturating_add(MIN_NS.min(self.length / 2)) / self.length;
        let end = whole.saturating_add(1).saturating_mul(self.length);
        let length = end.saturating_sub(at);
        let is_whole = length.abs_diff(self.length) < JITTER_NS;
        after.saturating_add(if is_whole { self.length } else { length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Intervals of 30 s that are complete in the batches at these times; `unix` is the time of day at each.
    fn all(times: impl Iterator<Item = u64>, unix: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut intervals = Intervals::new(Duration::from_secs(30));
        let found = times.filter_map(|time| intervals.complete(time, (time, unix(time))));
        found.map(|i| (i.from, i.to)).collect()
    }

    /// Check that intervals end at whole multiples by the clock of the day, one after the other, the first one earlier.
    #[test]
    fn aligned() {
        let begin = 1000 * S;
        // 12 s past a multiple.
        let unix = |time: u64| time - begin + 1_700_000_010 * S + 12 * S;
        assert_eq!(unix(begin) % (30 * S), 12 * S);
        let found = all((0..1000).map(|i| begin + i * S / 10), unix);
        assert_eq!(
            found,
            [
                (1000 * S, 1018 * S),
                (1018 * S, 1048 * S),
                (1048 * S, 1078 * S)
            ]
        );
    }

    /// Check that an interval that nobody took is a part of the next one.
    #[test]
    fn joined() {
        let mut intervals = Intervals::new(Duration::from_secs(30));
        let mut found = Vec::new();
        for time in (0..200).map(|i| i * S) {
            if let Some(interval) = intervals.complete(time, (time, 3000 * S + time)) {
                match interval.to {
                    to if to == 60 * S || to == 90 * S => intervals.join(interval),
                    to => found.push((interval.from, to)),
                }
            }
        }
        let whole = [(0, 30), (30, 120), (120, 150), (150, 180)];
        assert_eq!(found, whole.map(|(from, to)| (from * S, to * S)));
        assert_eq!(intervals.begin(), Some(180 * S));
    }

    /// Check that no time is lost when the clock of the day is read too early or too late.
    #[test]
    fn late_reading() {
        let off = [3_000_000, 1_400_000, 23_000_000, 3_000_000, 2_000_000];
        let jittering = |time: u64| 3000 * S + time - off[(time / S % 5) as usize];
        let mut intervals = Intervals::new(Duration::from_secs(1));
        let times = (0..6000).map(|i| i * S / 10);
        let found: Vec<_> = times
            .filter_map(|time| intervals.complete(time, (time, jittering(time))))
            .collect();
        assert!(found.len() > 590);
        for pair in found.windows(2) {
            assert_eq!(pair[0].to, pair[1].from);
            assert!(pair[0].to - pair[0].from > S / 2, "{pair:?}");
        }
    }

    /// Check that a clock that is corrected a little keeps the intervals, that one that jumps changes a single one, and
    /// that each begins where the last one ended.
    #[test]
    fn corrected() {
        let drifting = |time: u64| 3000 * S + time + time / 100_000 + time / 7 % 1000;
        let found = all((0..6000).map(|i| i * S / 10), drifting);
        assert_eq!(found.len(), 19);
        for (from, to) in found {
            assert!((29 * S..=31 * S).contains(&(to - from)), "{from} {to}");
        }
        let jumping = |time: u64| match time < 100 * S {
            true => 3000 * S + time,
            false => 1000 * S + 7 * S + time,
        };
        let found = all((0..3000).map(|i| i * S / 10), jumping);
        let odd = found
            .iter()
            .filter(|(from, to)| to - from != 30 * S)
            .count();
        assert_eq!(odd, 1, "{found:?}");
        for pair in found.windows(2) {
            assert_eq!(pair[0].1, pair[1].0);
        }
    }
}
