//! A request from another thread to the end of reads that take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::elf::ElfError;

/// Ends lookups early. Clones share one request, which is never taken back.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks for the end: reads fail from now on.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the end was asked for.
    pub(crate) fn check(&self) -> Result<(), ElfError> {
        match self.is_cancelled() {
            true => Err(ElfError::Cancelled),
            false => Ok(()),
        }
    }
}
