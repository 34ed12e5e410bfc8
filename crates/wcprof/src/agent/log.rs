//! Lines on standard error, with the level before them where that is systemd's journal (`sd-daemon(3)`).

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::stat::fstat;

/// How much a line matters, as syslog numbers it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// Writes a line.
pub(super) fn line(level: Level, text: &str) {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    let is_journal = IS_JOURNAL.get_or_init(|| {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let stat = fstat(std::io::stderr());
        stat.is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
    });
    match is_journal {
        true => message!("<{}>{}", level as u8, text.replace('\n', "; ")),
        false => message!("wcprof: {text}"),
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
    pub(super) fn say(&mut self, now: Instant) -> Option<u64> {
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
