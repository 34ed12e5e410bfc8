//! `60s`, `1.5m`, `500ms`, `2h` to a time; a bare number is seconds.

use std::time::Duration;

/// The time that a text says, at most a day.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(WRONG.to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| WRONG.to_owned())?;
    let time = number * seconds;
    match (0.0..=86_400.0).contains(&time) {
        true => Ok(Duration::from_secs_f64(time)),
        false => Err("the longest time is 24h".to_owned()),
    }
}

const WRONG: &str = "expected a time: a number and ms, s, m or h";

/// The time of `--keep`.
pub(crate) fn parse_keep(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    match time < Duration::from_secs(1) {
        true => Err("at least 1s is kept".to_owned()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check units, fractions and what is refused.
    #[test]
    fn times() {
        for (text, ms) in [
            ("60s", 60_000),
            ("60", 60_000),
            ("1.5m", 90_000),
            ("250ms", 250),
            ("24h", 86_400_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "-1s", "1 s", "1d", "1.2.3s", "25h", "1e3s", "nan"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert!(parse_keep("999ms").is_err());
        assert_eq!(parse_keep("1s"), Ok(Duration::from_secs(1)));
    }
}
