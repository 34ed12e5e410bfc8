//! Failures in a row to the time until the next try.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(120);

/// Twice as long after each failure, up to two minutes; a half of it is by chance, so that the hosts of a cluster do not
/// come back all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    n_failures: u32,
}

impl Backoff {
    /// `first`: the longest time after the first failure.
    pub(crate) fn new(first: Option<Duration>) -> Self {
        Self {
            first: first.unwrap_or(FIRST),
            n_failures: 0,
        }
    }

    /// After what succeeded.
    pub(crate) fn reset(&mut self) {
        self.n_failures = 0;
    }

    /// After a failure; `asked` is what the server wants.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = 2_u32.saturating_pow(self.n_failures);
        self.n_failures = self.n_failures.saturating_add(1);
        let longest = self.first.saturating_mul(doubled).min(LONGEST);
        let by_chance = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        by_chance.max(asked.unwrap_or_default().min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that times double up to the longest, that half of each is certain, that a server may ask for more, but not
    /// for any time, and that success begins afresh.
    #[test]
    fn times() {
        let mut backoff = Backoff::new(None);
        for longest in [1, 2, 4, 8, 16, 32, 64, 120, 120] {
            let longest = Duration::from_secs(longest);
            let next = backoff.next(None);
            assert!(
                next >= longest / 2 && next <= longest,
                "{next:?} of {longest:?}"
            );
        }
        backoff.reset();
        let asked = Duration::from_secs(30);
        assert_eq!(backoff.next(Some(asked)), asked);
        assert_eq!(backoff.next(Some(10_000 * asked)), LONGEST);
        backoff.n_failures = u32::MAX;
        assert!(backoff.next(None) <= LONGEST);
    }
}
