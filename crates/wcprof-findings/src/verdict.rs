//! Whether counted time is above the threshold of its rule, as sure as a 95 % interval is.

use wcprof_profile::Interval;
use wcprof_text::percent;

use crate::applied::AppliedRule;
use crate::counted::{Counted, Sum};
use crate::rule::Base;
use crate::totals::Totals;

/// Longest recording that is suggested, s.
const MAX_NEEDED_S: f64 = 3600.0;

/// Where an interval lies.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Above,
    /// It spans the threshold.
    Undecided,
    Below,
}

impl Verdict {
    /// Of an interval's low and high end: whether they are above.
    pub(crate) fn new(low_is_above: bool, high_is_above: bool) -> Self {
        match (low_is_above, high_is_above) {
            (true, _) => Self::Above,
            (false, true) => Self::Undecided,
            (false, false) => Self::Below,
        }
    }
}

impl AppliedRule<'_> {
    /// Whether the time of `rows` is above the rule's thresholds.
    pub(crate) fn verdict(&self, rows: &[Counted<'_>], totals: &Totals) -> Verdict {
        let limits = self.limits(rows, totals);
        let is_above = |end: fn(&Interval) -> u64| {
            let mut limits = limits.iter();
            limits.all(|(interval, whole, least)| percent(end(interval), *whole) >= *least)
        };
        let has_time = Sum::new(rows).weight > 0;
        Verdict::new(
            has_time && is_above(|i| i.low),
            has_time && is_above(|i| i.high),
        )
    }

    /// Length of a recording in which the interval of `rows` would no longer span a threshold, s: its width
    /// falls with the square root of the time.
    pub(crate) fn needed_s(&self, rows: &[Counted<'_>], totals: &Totals) -> Option<u64> {
        let weight = Sum::new(rows).weight;
        let limits = self.limits(rows, totals).into_iter();
        let needed = limits.map(|(interval, whole, least)| {
            let share = |ns| percent(ns, whole);
            needed_s(
                share(weight),
                (share(interval.low), share(interval.high)),
                least,
                self.index.duration_ns as f64 / 1e9,
            )
        });
        self.suggested_s(needed.fold(0.0, f64::max))
    }

    /// The length that is suggested, where `needed` s are not too many and the recording can tell.
    pub(crate) fn suggested_s(&self, needed: f64) -> Option<u64> {
        self.index.estimator.as_ref()?;
        (needed <= MAX_NEEDED_S).then_some(needed.ceil() as u64)
    }

    /// For each threshold the interval of the time of `rows`, what percentages are of, and the least.
    fn limits(&self, rows: &[Counted<'_>], totals: &Totals) -> [(Interval, u64, f64); 2] {
        let threshold = &self.rule.threshold;
        let interval = |base| self.interval(rows, totals.base_ns(base), totals.course(base));
        [
            (
                interval(threshold.of),
                totals.base_ns(threshold.of),
                threshold.percent,
            ),
            (
                interval(Base::Wall),
                self.index.duration_ns,
                threshold.min_wall_percent,
            ),
        ]
    }
}

/// Length of a recording after which an interval no longer spans `threshold`; all but lengths are percent.
pub(crate) fn needed_s(
    share: f64,
    (low, high): (f64, f64),
    threshold: f64,
    recorded_s: f64,
) -> f64 {
    if low >= threshold || high < threshold {
        return recorded_s;
    }
    let (width, distance) = match share >= threshold {
        true => (share - low, share - threshold),
        false => (high - share, threshold - share),
    };
    recorded_s * (width / distance).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the time that an interval needs to leave its threshold: half the width takes four times as long.
    #[test]
    fn needed() {
        assert_eq!(needed_s(6.0, (4.0, 8.0), 5.0, 10.0), 40.0);
        assert_eq!(needed_s(4.0, (2.0, 6.0), 5.0, 10.0), 40.0);
        assert_eq!(needed_s(9.0, (6.0, 12.0), 5.0, 10.0), 10.0);
        assert_eq!(needed_s(5.0, (4.0, 8.0), 5.0, 10.0), f64::INFINITY);
    }
}
