//! Whether two paths are one file: what is written must not take the place of what is read.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::Failure;

/// Device and inode.
pub fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether both are there and are one file.
pub fn is_same_file(a: io::Result<Metadata>, b: io::Result<Metadata>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => identity(&a) == identity(&b),
        _ => false,
    }
}

/// Refuses to write where a trace is that is read.
pub(crate) fn refuse_input(input: &Path, output: &Path) -> Result<(), Failure> {
    if !is_same_file(fs::metadata(input), fs::metadata(output)) {
        return Ok(());
    }
    let error = anyhow::anyhow!("`{}` is the input: it is not overwritten", output.display());
    Err(Failure::usage(error).hint("choose another file"))
}
