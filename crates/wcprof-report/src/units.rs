//! Numbers as people read them.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
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

/// Cuts to `width` columns of a terminal, of which wide characters take two, with `...` at the end of
/// what was cut.
pub fn cut(text: &str, width: Option<usize>) -> Cow<'_, str> {
    match width {
        Some(width) if columns(text) > width => {
            let mut short = head(text, width.saturating_sub(3)).to_owned();
            short.extend("...".chars().take(width));
            short.into()
        }
        _ => text.into(),
    }
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// As much of the text as has room in so many columns.
pub(crate) fn head(text: &str, width: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, c)| {
        taken += c.width().unwrap_or(0);
        taken > width
    });
    end.map_or(text, |(end, _)| text.get(..end).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that texts are cut at columns, not in the middle of a wide character.
    #[test]
    fn columns_are_cut() {
        for (text, width, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "lo..."),
            ("longer", 2, ".."),
            ("longer", 0, ""),
            ("磁盘读写", 8, "磁盘读写"),
            ("磁盘读写", 7, "磁盘..."),
            ("磁盘读写", 6, "磁..."),
            ("e\u{301}e\u{301}", 2, "e\u{301}e\u{301}"),
        ] {
            assert_eq!(cut(text, Some(width)), expected, "{text} {width}");
            assert!(columns(&cut(text, Some(width))) <= width);
        }
        assert_eq!(cut("磁盘", None), "磁盘");
    }

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

    /// Check that a cut line is never longer than asked, by characters and not by bytes.
    #[test]
    fn cuts() {
        assert_eq!(cut("größer", Some(6)), "größer");
        assert_eq!(cut("größere", Some(6)), "grö...");
        assert_eq!(cut("abcd", Some(2)), "..");
        assert_eq!(cut("abcd", None), "abcd");
    }
}
