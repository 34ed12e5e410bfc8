//! Calls about files of any file system, whose server may have ended since: on another thread, for a while.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Component, Path};

use rustix::fs::fstatfs;
use wcprof_types::Pid;

use super::child::COPIED;
use super::reason::{NoFile, OpenError};
use super::regular::{Root, open_regular};
use crate::deadline::{Awaited, is_silent, silence, with_deadline};
use crate::procfs::read_file;

/// Opens a file as [`open_regular`] does.
///
/// # Errors
/// As that, or when its file system does not answer.
pub fn open_regular_in_time(path: &Path) -> Result<File, OpenError> {
    open_in_time(folder(path), path, open_regular)
}

/// Opens a file below a root as [`Root::open_regular`] does.
///
/// # Errors
/// As that, or when its file system does not answer.
pub fn open_below_in_time(root: &Root, path: &Path) -> Result<File, OpenError> {
    let number = root.as_fd().as_raw_fd().to_string();
    let below = Path::new(&number).join(path.strip_prefix("/").unwrap_or(path));
    let root = root.try_clone().map_err(|e| NoFile::from(e).at(path))?;
    open_in_time(folder(&below), path, move |path| root.open_regular(path))
}

fn open_in_time(
    folder: u64,
    path: &Path,
    open: impl FnOnce(&Path) -> Result<File, OpenError> + Send + 'static,
) -> Result<File, OpenError> {
    let own = path.to_owned();
    let opened = with_deadline(Awaited::Host(folder), move || open(&own));
    opened.unwrap_or_else(|| Err(NoFile::NoAnswer.at(path)))
}

/// Which of a machine's folders a file is in: its first two, as `/usr/lib` or `/net/host`.
fn folder(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let names = path.components().filter(|c| *c != Component::RootDir);
    names.take(2).for_each(|name| name.hash(&mut hasher));
    hasher.finish()
}

/// Of magic numbers (`include/uapi/linux/magic.h`, `fs/nfs`, `fs/smb`), those of file systems that may ask a server, beside
/// [`COPIED`]: overlayfs, NFS, SMB (two), Ceph.
const MAY_ASK: [u64; 5] = [0x794c_7630, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400];

/// A mount whose file system may ask a server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Remote(u64);

impl Remote {
    /// That of an open file, if it is one. Its file system is asked.
    pub fn of(file: &File) -> Option<Self> {
        let magic = fstatfs(file).ok()?.f_type as u64;
        let may_ask = COPIED.contains(&magic) || MAY_ASK.contains(&magic);
        mount_id(file).filter(|_| may_ask).map(Self)
    }

    /// A child that read files on it did not get on, and has ended by now or is left behind: nobody waits for these files
    /// before that, and for a minute.
    pub fn note_silence(self, child: Pid) {
        silence(Awaited::Mount(self.0), child);
    }
}

/// Looks at an open file, and gives it back.
///
/// # Errors
/// When its file system does not answer.
pub fn look_in_time<T: Send + 'static>(
    file: File,
    look: impl FnOnce(&File) -> T + Send + 'static,
) -> Result<(File, T), NoFile> {
    let mount = mount_id(&file).unwrap_or_default();
    do_in_time(Awaited::Mount(mount), file, look)
}

/// Reads an open file of a JIT compiler, which may take long, and gives it back.
///
/// # Errors
/// When its file system does not answer.
pub fn read_code_in_time<T: Send + 'static>(
    file: File,
    read: impl FnOnce(&File) -> T + Send + 'static,
) -> Result<(File, T), NoFile> {
    let mount = mount_id(&file).unwrap_or_default();
    if is_silent(Awaited::Mount(mount)) {
        return Err(NoFile::NoAnswer);
    }
    do_in_time(Awaited::Code(mount), file, read)
}

fn do_in_time<T: Send + 'static>(
    awaited: Awaited,
    file: File,
    work: impl FnOnce(&File) -> T + Send + 'static,
) -> Result<(File, T), NoFile> {
    let work = move || {
        let result = work(&file);
        (file, result)
    };
    with_deadline(awaited, work).ok_or(NoFile::NoAnswer)
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

    /// Check that files are of one folder that one server may have, and no others.
    #[test]
    fn folders() {
        let of = |path| folder(Path::new(path));
        assert_eq!(of("/net/dbg/a/b.debug"), of("/net/dbg/c.debug"));
        assert_ne!(of("/net/dbg/a.debug"), of("/net/other/a.debug"));
    }

    /// Check that nobody waits for a file system that did not answer, but for others.
    #[test]
    fn by_mount() {
        let proc = File::open("/proc/version").unwrap();
        let other = tempfile::tempfile().unwrap();
        assert_ne!(mount_id(&proc).unwrap(), mount_id(&other).unwrap());
        let (never, wait) = channel::<()>();
        let again = proc.try_clone().unwrap();
        let hangs = look_in_time(proc, move |_| wait.recv().is_ok());
        assert!(hangs.unwrap_err().is_silence());
        assert!(look_in_time(again, |_| ()).unwrap_err().is_silence());
        let looked = look_in_time(other, |file| file.metadata().unwrap().len());
        assert_eq!(looked.unwrap().1, 0);
        drop(never);
    }
}
