//! Bytes of batches that wait for the recorder to whether there is room for more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that may wait: a second of the stacks of thousands of threads.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// What waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue(Arc<AtomicUsize>);

/// The part of one batch of what waits: it gives its bytes back when it is dropped.
#[derive(Debug)]
pub struct Queued {
    queue: Queue,
    n_bytes: usize,
}

impl Queue {
    /// Room for so many bytes; `None` when too many wait. One batch always has room.
    pub(crate) fn take(&self, n_bytes: usize) -> Option<Queued> {
        let waiting = self.0.load(Ordering::Relaxed);
        if waiting > 0 && waiting.saturating_add(n_bytes) > MAX_BYTES {
            return None;
        }
        self.0.fetch_add(n_bytes, Ordering::Relaxed);
        Some(Queued {
            queue: self.clone(),
            n_bytes,
        })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queue.0.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that bytes are limited, given back, and that a batch beyond the limit passes alone.
    #[test]
    fn room() {
        let queue = Queue::default();
        let large = queue.take(2 * MAX_BYTES).unwrap();
        assert!(queue.take(1).is_none());
        drop(large);
        let first = queue.take(MAX_BYTES - 1).unwrap();
        let second = queue.take(1).unwrap();
        assert!(queue.take(1).is_none());
        drop(first);
        assert!(queue.take(MAX_BYTES - 1).is_some());
        drop(second);
    }
}
