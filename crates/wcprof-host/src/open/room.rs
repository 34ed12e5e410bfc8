//! Room for copies of files, which all copies share.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a copy takes until it is closed.
#[derive(Debug)]
pub(super) struct Room {
    of: &'static AtomicU64,
    bytes: u64,
}

impl Room {
    /// `None` where the copies would take more than `most`.
    pub(super) fn take(of: &'static AtomicU64, most: u64, bytes: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|all| *all <= most);
        let taken = of.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self { of, bytes })
    }

    /// Gives back what is not needed.
    pub(super) fn shrink(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.of.fetch_sub(more, Ordering::Relaxed);
        self.bytes -= more;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
