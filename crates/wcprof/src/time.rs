//! `60s`, `1.5m`, `500ms`, `2h` to a time; a bare number is seconds. What every flag and condition that
//! takes a time understands.

use std::time::Duration;

use wcprof_types::TimeNs;

const NO_TIME: &str = "not a time; 3s, 500ms or 1.5m are";
/// Longer ones are no time of a recording: three years.
const MAX_NS: f64 = 1e17;
const DAY: Duration = Duration::from_hours(24);

/// The time that a text says.
pub(crate) fn parse_time(text: &str) -> Result<TimeNs, String> {
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    if number.is_empty() {
        return Err(NO_TIME.to_owned());
    }
    let ns = match unit.trim() {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err("unknown unit; h, m, s, ms and us are known".to_owned()),
    };
    match number.parse::<f64>() {
        Ok(n) if n * ns <= MAX_NS => Ok(TimeNs((n * ns).round() as u64)),
        Ok(_) => Err("too long".to_owned()),
        Err(_) => Err(NO_TIME.to_owned()),
    }
}

/// The same, at most a day.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(parse_time(text)?.0);
    match time > DAY {
        true => Err("the longest time is 24h".to_owned()),
        false => Ok(time),
    }
}

/// The time of `--keep`.
pub(crate) fn parse_keep(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    match time < Duration::from_secs(1) {
        true => Err("at least 1s is kept".to_owned()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check units of times, and that what is none is refused.
    #[test]
    fn times() {
        for (text, ns) in [
            ("3s", 3_000_000_000),
            ("3", 3_000_000_000),
            ("3 s", 3_000_000_000),
            ("0.5", 500_000_000),
            ("250ms", 250_000_000),
            ("7us", 7_000),
            ("1.5m", 90_000_000_000),
            ("2min", 120_000_000_000),
            ("2h", 7_200_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_time(text), Ok(TimeNs(ns)), "{text}");
        }
        for bad in [
            "",
            "s",
            "-1",
            "-1s",
            "1.2.3",
            "1.2.3s",
            "3 days",
            "1d",
            "1e3",
            "1e3s",
            "99999999999h",
            "inf",
            "nan",
        ] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    /// Check the longest time, and the shortest that is kept.
    #[test]
    fn limits() {
        assert_eq!(parse_duration("24h"), Ok(DAY));
        assert!(parse_duration("25h").is_err());
        assert!(parse_keep("999ms").is_err());
        assert_eq!(parse_keep("1s"), Ok(Duration::from_secs(1)));
    }
}
