//! A request from another thread to the end of reads that take long.

use std::io::{self, Read};
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

    /// The same bytes; reads of them fail once the end was asked for.
    pub fn reader<R: Read>(&self, input: R) -> impl Read + use<R> {
        Cancellable {
            input,
            cancel: self.clone(),
        }
    }

    /// Fails once the end was asked for.
    pub(crate) fn check(&self) -> Result<(), ElfError> {
        match self.is_cancelled() {
            true => Err(ElfError::Cancelled),
            false => Ok(()),
        }
    }
}

struct Cancellable<R> {
    input: R,
    cancel: Cancel,
}

impl<R: Read> Read for Cancellable<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancel.is_cancelled() {
            true => Err(io::Error::other("interrupted")),
            false => self.input.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is under way ends with an error, and not as if the input had ended.
    #[test]
    fn reader() {
        let cancel = Cancel::default();
        let mut input = cancel.reader(&b"abc"[..]);
        let mut byte = [0];
        assert_eq!(input.read(&mut byte).ok(), Some(1));
        cancel.cancel();
        assert_eq!(
            input.read_to_end(&mut Vec::new()).unwrap_err().to_string(),
            "interrupted"
        );
    }
}
