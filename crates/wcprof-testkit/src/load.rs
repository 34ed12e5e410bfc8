//! Keeps tests that need the CPUs for themselves apart.

use std::sync::{Mutex, MutexGuard, PoisonError};

static CPUS: Mutex<()> = Mutex::new(());

/// For a test that loads the CPUs, or whose truth would change if another test did: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    CPUS.lock().unwrap_or_else(PoisonError::into_inner)
}
