//! When names may be looked up again: within a part of the time alone.

use std::time::{Duration, Instant};

/// After a look-up as many times its time pass without one: a debug file that takes a second to read
/// is read every twentieth second at most. Time for which a busy machine let it wait does not count, or
/// names of what happens now would be late.
pub(super) const PAUSE: u32 = 20;

/// When names may be looked up again.
#[derive(Debug)]
pub(super) struct Pauses {
    /// The next one, and the longest, in times of what the last look-up took.
    next: u32,
    longest: u32,
    /// When the last look-up ended, and the CPU time that it took.
    last: Option<(Instant, Duration)>,
}

impl Pauses {
    pub(super) fn up_to(longest: u32) -> Self {
        Self {
            next: PAUSE,
            longest,
            last: None,
        }
    }

    pub(super) fn may_ask(&self, now: Instant, has_new_module: bool) -> bool {
        let pause = if has_new_module { PAUSE } else { self.next };
        let is_over = |(end, took): (Instant, Duration)| {
            now.saturating_duration_since(end) >= took.saturating_mul(pause)
        };
        self.last.is_none_or(is_over)
    }

    /// A look-up has ended. What is not named yet of modules that are known is less and less, and each look-up costs
    /// the same: the pauses grow.
    pub(super) fn begin(&mut self, now: Instant, took: Duration, has_new_module: bool) {
        self.last = Some((now, took));
        self.next = match has_new_module {
            true => PAUSE,
            false => self.next.saturating_mul(2).min(self.longest),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that look-ups are dense at first, take a small part of the time in the long run, and that another module is
    /// not waited for as long.
    #[test]
    fn pauses() {
        const TOOK: Duration = Duration::from_secs(3);
        let start = Instant::now();
        let mut pauses = Pauses::up_to(400);
        let mut asked = Vec::new();
        for interval in 0..24 * 120 {
            let now = Duration::from_secs(30 * interval);
            if pauses.may_ask(start + now, false) {
                asked.push(now.as_secs());
                pauses.begin(start + now, TOOK, false);
            }
        }
        assert_eq!(asked[..4], [0, 120, 360, 840]);
        assert!(
            asked.len() as u64 * TOOK.as_secs() < 24 * 3600 / 300,
            "{asked:?}"
        );
        let last = start + Duration::from_secs(*asked.last().unwrap());
        assert!(!pauses.may_ask(last + TOOK * 19, true));
        assert!(pauses.may_ask(last + TOOK * 21, true) && !pauses.may_ask(last + TOOK * 21, false));
        pauses.begin(last, TOOK, true);
        assert!(pauses.may_ask(last + TOOK * 21, false));
    }
}
