//! How many processes are recorded at most: fewer where these take more memory than `--max-memory` permits.

use std::time::{Duration, Instant};

/// A process leaves for another one, or for want of memory, only with a new recording, which begins no sooner than this after
/// the last one that did.
const EXCHANGE: Duration = Duration::from_secs(60);

/// The room for processes.
#[derive(Debug)]
pub(super) struct ProcessRoom {
    most: usize,
    now: usize,
    /// Bytes of wcprof.
    memory: u64,
    exchanged: Option<Instant>,
}

impl ProcessRoom {
    /// Room for `most` processes within `memory` bytes.
    pub(super) fn new(most: usize, memory: u64) -> Self {
        Self {
            most,
            now: most,
            memory,
            exchanged: None,
        }
    }

    /// Processes that may be recorded.
    pub(super) fn n(&self) -> usize {
        self.now
    }

    /// Whether a new recording may begin, without some of its processes.
    pub(super) fn may_exchange(&self, now: Instant) -> bool {
        let is_over = |last| now.saturating_duration_since(last) >= EXCHANGE;
        self.exchanged.is_none_or(is_over)
    }

    pub(super) fn exchange(&mut self, now: Instant) {
        self.exchanged = Some(now);
    }

    /// Adapts it to the memory that wcprof has while it records `n` processes.
    pub(super) fn adapt(&mut self, now: Instant, resident: u64, n: usize) {
        if resident > self.memory && self.may_exchange(now) {
            self.now = self.now.min(n - n / 4).max(1);
        } else if resident > self.memory / 10 * 9 {
            self.now = self.now.min(n.max(1));
        } else if resident < self.memory / 4 * 3 {
            self.now = self.most.min(self.now + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that processes are not taken in where memory is short, leave where it is exceeded, once a minute, and come back one
    /// by one.
    #[test]
    fn memory() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut room = ProcessRoom::new(1000, 100);
        room.adapt(at(0), 80, 40);
        assert_eq!(room.n(), 1000);
        room.adapt(at(1), 95, 41);
        assert_eq!(room.n(), 41);
        room.adapt(at(2), 101, 41);
        assert_eq!(room.n(), 31);
        room.exchange(at(2));
        room.adapt(at(61), 101, 31);
        assert_eq!(room.n(), 31);
        room.adapt(at(62), 101, 31);
        assert_eq!(room.n(), 24);
        room.adapt(at(63), 80, 24);
        assert_eq!(room.n(), 24);
        room.adapt(at(64), 70, 24);
        assert_eq!(room.n(), 25);
        room.adapt(at(65), 1000, 0);
        assert_eq!(room.n(), 1);
    }
}
