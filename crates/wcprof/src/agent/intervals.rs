//! Two clocks to intervals: whole multiples of their length since 1970, as times of the recording.

use std::time::Duration;

use wcprof_host::clock::Moment;

use crate::live::SETTLED_NS;

/// Two clocks that are read one after the other show another difference each time, and one of them is corrected a little: less
/// than this is none, ns.
const JITTER_NS: u64 = 1_000_000;

/// An interval that is shorter is none, ns: a recording that ends just after one, or a busy machine that let much time
/// pass between the readings of the two clocks.
pub(super) const MIN_NS: u64 = 50_000_000;

/// A part of a recording: `from` and `to` by `CLOCK_MONOTONIC`, ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Interval {
    pub(super) from: u64,
    pub(super) to: u64,
    /// When it ends by the clock of the day, ns since 1970: a whole multiple of the length, but for the last one of a recording
    /// and where that clock was set.
    pub(super) unix_to: u64,
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

    /// The interval that is complete at `time`, not much before `now`. A change of the clock of the day makes one interval
    /// shorter or longer.
    pub(super) fn complete(&mut self, time: u64, now: Moment) -> Option<Interval> {
        let Some(mut current) = self.current else {
            self.current = Some(self.next(now, time));
            return None;
        };
        if time < current.to.saturating_add(SETTLED_NS) {
            return None;
        }
        self.current = Some(self.next(now, current.to));
        let unix_to = now.unix_of(current.to);
        if unix_to.abs_diff(current.unix_to) > JITTER_NS {
            current.unix_to = unix_to;
        }
        Some(current)
    }

    /// Lets the interval that is under way begin where one did that nobody could take.
    pub(super) fn join(&mut self, missed: Interval) {
        if let Some(current) = &mut self.current {
            current.from = missed.from;
        }
    }

    /// The interval that is under way, as it is when it ends at `to`, not much before `now`.
    pub(super) fn last(&self, to: u64, now: Moment) -> Option<Interval> {
        self.current.map(|current| Interval {
            from: current.from,
            to,
            unix_to: now.unix_of(to),
        })
    }

    /// The interval from a moment to the first whole multiple of the length that lies after it, and not so close that nothing
    /// would be between.
    fn next(&self, now: Moment, from: u64) -> Interval {
        let at = now.unix_of(from);
        let whole = at.saturating_add(MIN_NS.min(self.length / 2)) / self.length;
        let end = whole.saturating_add(1).saturating_mul(self.length);
        let length = end.saturating_sub(at);
        let is_whole = length.abs_diff(self.length) < JITTER_NS;
        Interval {
            from,
            to: from.saturating_add(if is_whole { self.length } else { length }),
            unix_to: end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Intervals of 30 s that are complete in the batches at these times; `unix` is the time of day at each.
    fn all(times: impl Iterator<Item = u64>, unix: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let mut intervals = Intervals::new(Duration::from_secs(30));
        let found = times.filter_map(|time| intervals.complete(time, at(time, unix(time))));
        found.map(|i| (i.from, i.to)).collect()
    }

    fn at(monotonic: u64, unix: u64) -> Moment {
        Moment { monotonic, unix }
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
            if let Some(interval) = intervals.complete(time, at(time, 3000 * S + time)) {
                match interval.to {
                    to if to == 60 * S || to == 90 * S => intervals.join(interval),
                    to => found.push((interval.from, to)),
                }
            }
        }
        let whole = [(0, 30), (30, 120), (120, 150), (150, 180)];
        assert_eq!(found, whole.map(|(from, to)| (from * S, to * S)));
        let last = intervals.last(199 * S, at(200 * S, 3200 * S)).unwrap();
        assert_eq!(
            (last.from, last.to, last.unix_to),
            (180 * S, 199 * S, 3199 * S)
        );
    }

    /// Check that an interval ends at a whole multiple by the clock of the day, to the nanosecond, where that clock is corrected a
    /// little, and where it is when that clock is set in the middle of it.
    #[test]
    fn ends_by_the_day() {
        let unix = |time: u64| match time < 100 * S {
            true => 3000 * S + time + time / S % 7 * 1000,
            false => 9007 * S + time,
        };
        let mut intervals = Intervals::new(Duration::from_secs(30));
        let times = (0..200).map(|i| i * S);
        let complete = times.filter_map(|time| intervals.complete(time, at(time, unix(time))));
        let ends: Vec<_> = complete.map(|interval| interval.unix_to).collect();
        // The one that ended at 3120 begins before the change, and ends 30 s later.
        let set = [3030, 3060, 3090, 9127, 9150, 9180];
        assert_eq!(ends, set.map(|end| end * S));
    }

    /// Check that no time is lost when the clock of the day is read too early or too late.
    #[test]
    fn late_reading() {
        let off = [3_000_000, 1_400_000, 23_000_000, 3_000_000, 2_000_000];
        let jittering = |time: u64| 3000 * S + time - off[(time / S % 5) as usize];
        let mut intervals = Intervals::new(Duration::from_secs(1));
        let times = (0..6000).map(|i| i * S / 10);
        let found: Vec<_> = times
            .filter_map(|time| intervals.complete(time, at(time, jittering(time))))
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
