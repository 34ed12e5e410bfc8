//! Whether two paths are one file: what is written must not take the place of what is read.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Device and inode.
pub(crate) fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether both are there and are one file.
pub(crate) fn is_same_file(a: io::Result<Metadata>, b: io::Result<Metadata>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => identity(&a) == identity(&b),
        _ => false,
    }
}
