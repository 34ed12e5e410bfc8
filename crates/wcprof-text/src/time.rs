//! A time as people type it: `60s`, `1.5m`, `500ms`, `2h`; a bare number is seconds.

use std::time::Duration;

const NO_TIME: &str = "not a time; 3s, 500ms or 1.5m are";
/// Longer ones are no time of a recording, ns: three years.
const MAX_NS: f64 = 1e17;

/// The time that a text says.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let unit = text.trim_start_matches(is_number);
    let number = &text[..text.len() - unit.len()];
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
        Ok(n) if n * ns <= MAX_NS => Ok(Duration::from_nanos((n * ns).round() as u64)),
        Ok(_) => Err("too long".to_owned()),
        Err(_) => Err(NO_TIME.to_owned()),
    }
}

/// The same, of two that bound it, as people type them.
///
/// # Errors
/// What is wrong with the text.
pub fn time_in(text: &str, min: &str, max: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    match (parse_time(min)?..=parse_time(max)?).contains(&time) {
        true => Ok(time),
        false => Err(format!("must be {min} to {max}")),
    }
}

/// The same, at most a day.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_short_time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    match time > Duration::from_hours(24) {
        true => Err("the longest time is 24h".to_owned()),
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
            assert_eq!(parse_time(text), Ok(Duration::from_nanos(ns)), "{text}");
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

    /// Check the longest time, and both ends of a range.
    #[test]
    fn limits() {
        let within = |text| time_in(text, "1s", "1m");
        assert_eq!(within("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(within("60"), Ok(Duration::from_secs(60)));
        for bad in ["999ms", "61s"] {
            assert_eq!(within(bad), Err("must be 1s to 1m".to_owned()));
        }
        assert_eq!(parse_short_time("24h"), Ok(Duration::from_hours(24)));
        assert!(parse_short_time("25h").is_err());
    }
}
