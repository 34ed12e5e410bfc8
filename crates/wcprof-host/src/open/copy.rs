//! Copies of files whose server may end before wcprof has read them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use super::closing::TargetFile;
use super::reason::NoFile;
use super::room::Room;
use crate::own_files::{check_free, unnamed_file};

/// Files beyond this are not copied.
const MAX_COPIED: u64 = 2 << 30;
/// Copies up to this are kept in memory, where all together take up to [`MAX_IN_MEMORY`].
const SMALL: u64 = 32 << 20;
const MAX_IN_MEMORY: u64 = 128 << 20;
const MAX_ON_DISK: u64 = 4 << 30;
/// Nobody waits longer.
const MAX_TIME: Duration = Duration::from_secs(30);
const BUFFER: usize = 1 << 16;
/// Others may write to the disk, too: it is looked at after so many bytes.
const STEP: u64 = 16 << 20;

static IN_MEMORY: AtomicU64 = AtomicU64::new(0);
static ON_DISK: AtomicU64 = AtomicU64::new(0);

/// A copy of a file, as long as that is now.
pub(super) fn copy(file: &File) -> Result<TargetFile, NoFile> {
    let size = file.metadata()?.len();
    if size > MAX_COPIED {
        return Err(NoFile::NoCopy);
    }
    let in_memory = match size {
        0..=SMALL => Room::take(&IN_MEMORY, MAX_IN_MEMORY, size),
        _ => None,
    };
    let is_on_disk = in_memory.is_none();
    let (to, mut room) = match in_memory {
        Some(room) => (
            memfd_create(c"wcprof-copy", MemfdFlags::CLOEXEC)?.into(),
            room,
        ),
        None => {
            let room = Room::take(&ON_DISK, MAX_ON_DISK, size).ok_or(NoFile::NoRoom)?;
            (unnamed_file(size).map_err(|_| NoFile::NoCopy)?, room)
        }
    };
    let began = Instant::now();
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
        if began.elapsed() > MAX_TIME {
            return Err(NoFile::NoAnswer);
        }
        let next = at + piece.len() as u64;
        if is_on_disk && at / STEP != next / STEP {
            check_free(&to, size - at).map_err(|_| NoFile::NoCopy)?;
        }
        // Who reads it begins at its beginning.
        to.write_all_at(piece, at)?;
        at = next;
    }
    room.shrink(at);
    Ok(TargetFile::copy(to, room))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::atomic::Ordering;

    use super::*;

    /// Check that a copy has the content of the file, that copies which are small are in memory while there is room, others on the
    /// disk, and none beyond that.
    #[test]
    fn copied() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * BUFFER + 1).map(|n| n as u8).collect();
        file.write_all(&content).unwrap();
        let mut bytes = Vec::new();
        let copied = copy(&file).unwrap();
        (&*copied).read_to_end(&mut bytes).unwrap();
        assert!(bytes == content);
        drop(copied);
        let file = tempfile::tempfile().unwrap();
        file.set_len(SMALL).unwrap();
        let in_memory = || IN_MEMORY.load(Ordering::Relaxed);
        let copies: Vec<TargetFile> = (0..=MAX_IN_MEMORY / SMALL)
            .map(|_| copy(&file).unwrap())
            .collect();
        let n_on_disk = ON_DISK.load(Ordering::Relaxed) / SMALL;
        assert_eq!((in_memory(), n_on_disk), (MAX_IN_MEMORY, 1));
        drop(copies);
        assert_eq!((in_memory(), ON_DISK.load(Ordering::Relaxed)), (0, 0));
        let all = Room::take(&ON_DISK, MAX_ON_DISK, MAX_ON_DISK).unwrap();
        file.set_len(SMALL + 1).unwrap();
        assert!(matches!(copy(&file), Err(NoFile::NoRoom)));
        drop(all);
    }
}
