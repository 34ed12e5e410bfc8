//! A memory budget that modules symbolized at the same time share.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts bytes in use against a limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Bytes taken from a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `bytes`, waiting until others have given back enough. `None` when `bytes` is over the
    /// limit even alone, so that the outcome does not depend on what else runs. A holder must not
    /// reserve again: it could wait for itself.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        if bytes > self.limit {
            return None;
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while self.limit - *used < bytes {
            used = self
                .freed
                .wait(used)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *used += bytes;
        Some(Reservation {
            budget: self,
            bytes,
        })
    }
}

impl Budget {
    /// Takes what a lookup can use that reads `need` bytes: a quarter of the limit if that is plenty,
    /// else three quarters, so that a small lookup can go on beside a large one. Waits like
    /// [`Self::reserve`].
    pub(crate) fn reserve_share(&self, need: u64) -> Reservation<'_> {
        let small = self.limit / 4;
        let bytes = if need <= small / 4 {
            small
        } else {
            self.limit - small
        };
        // Never over the limit.
        self.reserve(bytes).unwrap_or(Reservation {
            budget: self,
            bytes: 0,
        })
    }
}

impl Reservation<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let budget = self.budget;
        *budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that two reservations that do not fit together are held one after the other.
    #[test]
    fn waits_for_room() {
        let budget = Budget::new(100);
        let inside = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _reservation = budget.reserve(60).unwrap();
                        *inside.lock().unwrap() += 1;
                        assert_eq!(*inside.lock().unwrap(), 1);
                        *inside.lock().unwrap() -= 1;
                    }
                });
            }
        });
        assert_eq!(*budget.used.lock().unwrap(), 0);
    }

    /// Check that a need over the limit is refused at once.
    #[test]
    fn over_the_limit() {
        let budget = Budget::new(100);
        assert!(budget.reserve(101).is_none());
        assert!(budget.reserve(100).is_some());
    }
}
