//! What the agent says, and how often.

use std::time::{Duration, Instant};

use crate::message;
pub(super) use crate::message::Level;

/// Writes a line.
pub(super) fn line(level: Level, text: &str) {
    message::line(level, &format!("wcprof: {text}"));
}

/// Writes a line of a kind that is written once a minute.
pub(super) fn sparingly(sparing: &mut Sparing, level: Level, text: &str) {
    match sparing.say(Instant::now()) {
        None => {}
        Some(0) => line(level, text),
        Some(n) => line(
            level,
            &format!("{text} ({n} times more in the last minute)"),
        ),
    }
}

/// Lets the same be said once a minute.
#[derive(Debug, Default)]
pub(super) struct Sparing {
    said: Option<Instant>,
    n_unsaid: u64,
}

impl Sparing {
    /// Whether it is to be said now; then also how often it was not since the last time.
    fn say(&mut self, now: Instant) -> Option<u64> {
        let is_due = self
            .said
            .is_none_or(|said| now.duration_since(said) >= Duration::from_secs(60));
        if !is_due {
            self.n_unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.n_unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what happens all the time is said at once and then once a minute, with a count.
    #[test]
    fn sparing() {
        let mut sparing = Sparing::default();
        let begin = Instant::now();
        let said: Vec<_> = (0..130)
            .filter_map(|second| sparing.say(begin + Duration::from_secs(second)))
            .collect();
        assert_eq!(said, [0, 59, 59]);
    }
}
