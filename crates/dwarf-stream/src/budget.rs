//! A memory limit that lookups at the same time share.

use std::fs::File;
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::allowance::Allowance;
use crate::table::{NewFile, temporary_file};

/// Counts bytes in use against a limit.
pub struct Budget {
    limit: u64,
    /// Makes the files of tables that do not fit.
    new_file: Box<NewFile>,
    used: Mutex<u64>,
    freed: Condvar,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

/// Bytes taken from a [`Budget`]; given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// `limit` is in bytes.
    pub fn new(limit: u64) -> Self {
        Self::with_files(limit, |_| temporary_file())
    }

    /// `new_file` makes an empty file without a name, for a table of so many bytes that does not fit; otherwise it is
    /// in `/var/tmp`.
    pub fn with_files(
        limit: u64,
        new_file: impl Fn(u64) -> io::Result<File> + Send + Sync + 'static,
    ) -> Self {
        Self {
            limit,
            new_file: Box::new(new_file),
            used: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `bytes`, and waits until others have given back enough. `None` when `bytes` is over the
    /// limit even alone, so that the outcome does not depend on what else runs. A holder must not
    /// reserve again: it could wait for itself.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<'_>> {
        if bytes > self.limit {
            return None;
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let has_no_room = |used: &mut u64| self.limit - *used < bytes;
        let waited = self.freed.wait_while(used, has_no_room);
        *waited.unwrap_or_else(PoisonError::into_inner) += bytes;
        Some(Reservation {
            budget: self,
            bytes,
        })
    }

    /// Takes what a lookup can use that reads `need` bytes: a quarter of the limit if that is plenty,
    /// else three quarters, so that a small lookup can go on beside a large one. Waits like
    /// [`Self::reserve`].
    pub(crate) fn reserve_share(&self, need: u64) -> Reservation<'_> {
        let small = self.limit / 4;
        let bytes = match need <= small / 4 {
            true => small,
            false => self.limit - small,
        };
        // Never over the limit.
        self.reserve(bytes).unwrap_or(Reservation {
            budget: self,
            bytes: 0,
        })
    }
}

impl Reservation<'_> {
    /// How much memory each part of a lookup may take.
    pub(crate) fn shares(&self) -> Shares<'_> {
        Shares {
            new_file: &*self.budget.new_file,
            tables: self.bytes / 8 * 3,
            units: self.bytes / 8 * 3,
            strings: Allowance::new(self.bytes / 8),
            frames: Allowance::new(self.bytes / 8),
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let budget = self.budget;
        *budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        budget.freed.notify_all();
    }
}

/// How much memory each part of a lookup may take, bytes.
pub(crate) struct Shares<'b> {
    /// Makes the files of tables that do not fit.
    pub(crate) new_file: &'b NewFile,
    /// The sections that are accessed at random, together.
    pub(crate) tables: u64,
    /// Units and line programs in flight.
    pub(crate) units: u64,
    /// Names and paths.
    pub(crate) strings: Allowance,
    /// Functions, before and after their strings are read.
    pub(crate) frames: Allowance,
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
