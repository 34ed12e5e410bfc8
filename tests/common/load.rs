//! Keeps tests that need the machine's CPUs for themselves apart from the others.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CPUS: RwLock<()> = RwLock::new(());

/// For a test whose targets mostly wait: others of its kind may run beside it.
pub(crate) fn quiet() -> RwLockReadGuard<'static, ()> {
    CPUS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that loads the CPUs, or whose truth would change if something else did.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    CPUS.write().unwrap_or_else(PoisonError::into_inner)
}
