//! Copies of files whose server may end before wcprof has read them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::reason::NoFile;
use crate::own_files::unnamed_file;

/// Files beyond this are not copied.
const MAX_COPIED: u64 = 2 << 30;
/// Copies up to this are kept in memory.
const IN_MEMORY: u64 = 32 << 20;
const BUFFER: usize = 1 << 16;

/// A copy of a file, as long as that is now.
pub(super) fn copy(file: &File) -> Result<File, NoFile> {
    let size = file.metadata()?.len();
    let to = match size {
        0..=IN_MEMORY => File::from(memfd_create(c"wcprof-copy", MemfdFlags::CLOEXEC)?),
        _ if size <= MAX_COPIED => unnamed_file(size).map_err(|_| NoFile::NoCopy)?,
        _ => return Err(NoFile::NoCopy),
    };
    let (mut at, mut buffer) = (0, vec![0; BUFFER]);
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
        // Who reads it begins at its beginning.
        to.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// Check that a copy has the content of the file.
    #[test]
    fn copied() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * BUFFER + 1).map(|n| n as u8).collect();
        file.write_all(&content).unwrap();
        let mut bytes = Vec::new();
        copy(&file).unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == content);
    }
}
