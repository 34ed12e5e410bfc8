//! Files and folders that nobody but the user can have written: whether one is, and how one is made.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Whether a file belongs to the user, and nobody else can write it.
pub fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == nix::unistd::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// Refuses a folder that is in one of somebody else: `sudo` may leave another user's home.
///
/// # Errors
/// When it is refused, or its place cannot be looked up.
pub fn check_place(dir: &Path) -> io::Result<()> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    let existing = dir.ancestors().find(|d| d.exists()).ok_or_else(refused)?;
    match is_own(&fs::metadata(existing)?) {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// Makes a folder that only the user can enter.
///
/// # Errors
/// When it is not there and cannot be made.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// A file that no path leads to. `/tmp` comes last, since it is often in memory.
///
/// # Errors
/// When neither folder takes one.
pub fn unnamed_file() -> io::Result<File> {
    tempfile::tempfile_in("/var/tmp").or_else(|_| tempfile::tempfile())
}
