//! Numbers as people read them.

use wcprof_profile::Interval;

/// A duration in the largest unit that keeps three digits: `12.3 s`, `4.56 ms`, `789 us`.
pub(crate) fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        // From 999.5 on a value would read 1000.
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} us", digits(value / 1e3)),
        999_500..999_500_000 => format!("{} ms", digits(value / 1e6)),
        _ => format!("{} s", digits(value / 1e9)),
    }
}

fn digits(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `part` of `whole` in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// Half the width of an interval in percent of `whole`: `±0.31`; empty when it is not known.
pub(crate) fn plus_minus(interval: Option<Interval>, whole: u64) -> String {
    interval.map_or_else(String::new, |i| {
        let half = percent(i.high.saturating_sub(i.low), whole) / 2.0;
        if half < 9.995 {
            format!("±{half:.2}")
        } else {
            format!("±{half:.1}")
        }
    })
}

/// `1 thread`, `2 threads`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check units at their borders.
    #[test]
    fn durations() {
        for (ns, text) in [
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_345, "12.3 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (123_456_789, "123 ms"),
            (999_500_000, "1.00 s"),
            (1_000_000_000, "1.00 s"),
            (3_600_000_000_000, "3600 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
