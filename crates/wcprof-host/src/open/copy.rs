//! Copies of files whose server may end before wcprof has read them.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, fstatfs, memfd_create, statvfs};

use super::reason::NoFile;
use super::regular::nameless_in;

/// Files beyond this are not copied.
const MAX_COPIED: u64 = 2 << 30;
/// Copies up to this are kept in memory.
const IN_MEMORY: u64 = 32 << 20;
/// Left free on the file system that holds a copy.
const LEFT_FREE: u64 = 512 << 20;
const BUFFER: usize = 1 << 16;
/// `FUSE_SUPER_MAGIC` (virtiofs, too) and `V9FS_MAGIC`, `include/uapi/linux/magic.h`. The servers of others outlive their clients.
pub(super) const COPIED: [u64; 2] = [0x6573_5546, 0x0102_1997];

/// Whether a file is to be copied. Its file system is asked.
pub(super) fn is_copied(file: &File) -> io::Result<bool> {
    Ok(COPIED.contains(&(fstatfs(file)?.f_type as u64)))
}

/// A copy of a file, as long as that is now.
pub(super) fn copy(file: &File) -> Result<OwnedFd, NoFile> {
    let size = file.metadata()?.len();
    let has_room = |folder: &&CStr| {
        let free = statvfs(*folder).map_or(0, |s| s.f_frsize.saturating_mul(s.f_bavail));
        free >= size.saturating_add(LEFT_FREE)
    };
    let to = if size <= IN_MEMORY {
        memfd_create(c"wcprof-copy", MemfdFlags::CLOEXEC)?
    } else {
        // `/tmp` comes last, since it is often in memory.
        let folders = [c"/var/tmp", c"/tmp"].into_iter().filter(has_room);
        let mut copies = folders.map(nameless_in).filter_map(Result::ok);
        let copy = copies.next().filter(|_| size <= MAX_COPIED);
        copy.ok_or(NoFile::NoCopy)?
    };
    let (mut to, mut at, mut buffer) = (File::from(to), 0, [0; BUFFER]);
    while at < size {
        let n = match file.read_at(&mut buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            n => n?,
        };
        let wanted = usize::try_from(size - at).unwrap_or(usize::MAX);
        let piece = &buffer[..n.min(wanted)];
        if piece.is_empty() {
            break;
        }
        to.write_all(piece)?;
        at += piece.len() as u64;
    }
    Ok(to.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a copy has the content of the file, and that no disk file is copied.
    #[test]
    fn copied() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * BUFFER + 1).map(|n| n as u8).collect();
        file.write_all(&content).unwrap();
        assert!(!is_copied(&file).unwrap());
        let copy = File::from(copy(&file).unwrap());
        let mut bytes = vec![0; content.len()];
        copy.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == content && copy.metadata().unwrap().len() == content.len() as u64);
    }
}
