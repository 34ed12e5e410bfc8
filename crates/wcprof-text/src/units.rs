//! Numbers as people read them.

/// A duration in the largest unit that keeps three digits: `12.3 s`, `4.56 ms`, `789 us`.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    match ns {
        // From 999.5 on a value would read 1000.
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} us", three_digits(value / 1e3)),
        999_500..999_500_000 => format!("{} ms", three_digits(value / 1e6)),
        _ => format!("{} s", three_digits(value / 1e9)),
    }
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// `part` of `whole` in percent; 0 of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        _ => 100.0 * part as f64 / whole as f64,
    }
}

/// `512 KiB`, `3 MiB`, `1.5 GiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..0x10_0000 => format!("{} KiB", n >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", n >> 20),
        _ => format!("{:.1} GiB", n as f64 / f64::from(1 << 30)),
    }
}

/// `1 thread`, `2 threads`.
pub fn count(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// ` and 3 more`; nothing for 0.
pub fn and_more(n: usize) -> String {
    match n {
        0 => String::new(),
        n => format!(" and {n} more"),
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
