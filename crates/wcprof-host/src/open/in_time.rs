//! Calls about files of any file system, whose server may have ended since: on another thread, for a while.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::reason::{NoFile, OpenError};
use super::regular::open_regular;
use crate::deadline::{Awaited, with_deadline};
use crate::procfs::read_file;

/// Opens a file as [`open_regular`] does.
///
/// # Errors
/// As that, or when its file system does not answer.
pub fn open_regular_in_time(path: &Path) -> Result<File, OpenError> {
    let own = path.to_owned();
    let opened = with_deadline(Awaited::Host, move || open_regular(&own));
    opened.unwrap_or_else(|| Err(NoFile::NoAnswer.at(path)))
}

/// Looks at an open file.
///
/// # Errors
/// When its file system does not answer.
pub fn look_in_time<T: Send + 'static>(
    file: &File,
    look: impl FnOnce(&File) -> T + Send + 'static,
) -> Result<T, NoFile> {
    let file = file.try_clone()?;
    let mount = mount_id(&file).unwrap_or_default();
    let looked = with_deadline(Awaited::Mount(mount), move || look(&file));
    looked.ok_or(NoFile::NoAnswer)
}

/// Which mount a file is on. Its file system is not asked.
fn mount_id(file: &File) -> Option<u64> {
    let info = read_file(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Check that nobody waits for a file system that did not answer, but for others.
    #[test]
    fn by_mount() {
        let proc = File::open("/proc/version").unwrap();
        let other = tempfile::tempfile().unwrap();
        assert_ne!(mount_id(&proc).unwrap(), mount_id(&other).unwrap());
        let (never, wait) = channel::<()>();
        let hangs = look_in_time(&proc, move |_| wait.recv().is_ok());
        assert!(hangs.unwrap_err().is_silence());
        assert!(look_in_time(&proc, |_| ()).unwrap_err().is_silence());
        let size = look_in_time(&other, |file| file.metadata().unwrap().len());
        assert_eq!(size.unwrap(), 0);
        drop(never);
    }
}
