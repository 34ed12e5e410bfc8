//! Calls about files of any file system, whose server may have ended since: on another thread, for a while.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Component, Path};

use wcprof_types::Pid;

use super::closing::{TargetFile, is_closing};
use super::file_system::FileSystem;
use super::reason::{NoFile, OpenError};
use super::regular::{Root, open_regular};
use crate::deadline::{Awaited, is_silent, silence, with_deadline};

/// Opens a file as [`open_regular`] does.
///
/// # Errors
/// As that, or when its file system does not answer.
pub fn open_regular_in_time(path: &Path) -> Result<TargetFile, OpenError> {
    open_in_time(folder(path), path, open_regular)
}

/// Opens a file below a root as [`Root::open_regular`] does.
///
/// # Errors
/// As that, or when its file system does not answer.
pub fn open_below_in_time(root: &Root, path: &Path) -> Result<TargetFile, OpenError> {
    let number = root.as_fd().as_raw_fd().to_string();
    let below = Path::new(&number).join(path.strip_prefix("/").unwrap_or(path));
    let root = root.clone();
    open_in_time(folder(&below), path, move |path| root.open_regular(path))
}

fn open_in_time(
    folder: u64,
    path: &Path,
    open: impl FnOnce(&Path) -> Result<File, OpenError> + Send + 'static,
) -> Result<TargetFile, OpenError> {
    let own = path.to_owned();
    let open = move || open(&own).map(TargetFile::from);
    let opened = with_deadline(Awaited::Host(folder), open);
    opened.unwrap_or_else(|| Err(NoFile::NoAnswer.at(path)))
}

/// Which of a machine's folders a file is in: its first two, as `/usr/lib` or `/net/host`.
fn folder(path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let names = path.components().filter(|c| *c != Component::RootDir);
    names.take(2).for_each(|name| name.hash(&mut hasher));
    hasher.finish()
}

/// A mount whose file system may ask a server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Remote(u64);

impl Remote {
    /// That of an open file, if it is one. Its file system is asked.
    pub fn of(file: &TargetFile) -> Option<Self> {
        let may_ask = !FileSystem::of(file).ok()?.is_local();
        file.mount().filter(|_| may_ask).map(Self)
    }

    /// Whether a file on it is being closed.
    pub fn is_closing(self) -> bool {
        is_closing(self.0)
    }

    /// A child that read files on it did not get on, and has ended by now or is left behind: nobody waits for these files
    /// before that, and for a minute.
    pub fn note_silence(self, child: Pid) {
        silence(Awaited::Mount(self.0), child);
    }
}

/// Looks at an open file.
///
/// # Errors
/// When its file system does not answer.
pub fn look_in_time<T: Send + 'static>(
    file: &TargetFile,
    look: impl FnOnce(TargetFile) -> T + Send + 'static,
) -> Result<T, NoFile> {
    match file.mount() {
        Some(mount) => do_in_time(Awaited::Mount(mount), file, look),
        None => Ok(look(file.clone())),
    }
}

/// Reads an open file of a JIT compiler, which may take long.
///
/// # Errors
/// When its file system does not answer.
pub fn read_code_in_time<T: Send + 'static>(
    file: &TargetFile,
    read: impl FnOnce(TargetFile) -> T + Send + 'static,
) -> Result<T, NoFile> {
    match file.mount() {
        Some(mount) if is_silent(Awaited::Mount(mount)) => Err(NoFile::NoAnswer),
        Some(mount) => do_in_time(Awaited::Code(mount), file, read),
        None => Ok(read(file.clone())),
    }
}

/// Does something with a file on another thread.
pub(crate) fn do_in_time<T: Send + 'static>(
    awaited: Awaited,
    file: &TargetFile,
    work: impl FnOnce(TargetFile) -> T + Send + 'static,
) -> Result<T, NoFile> {
    let file = file.clone();
    with_deadline(awaited, move || work(file)).ok_or(NoFile::NoAnswer)
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
        let again = proc.try_clone().unwrap();
        let [proc, again, other] = [proc, again, other].map(TargetFile::from);
        assert_eq!(proc.mount(), again.mount());
        assert_ne!(proc.mount(), other.mount());
        let (never, wait) = channel::<()>();
        let hangs = look_in_time(&proc, move |_| wait.recv().is_ok());
        assert!(hangs.unwrap_err().is_silence());
        assert!(look_in_time(&again, |_| ()).unwrap_err().is_silence());
        let looked = look_in_time(&other, |file| file.metadata().unwrap().len());
        assert_eq!(looked.unwrap(), 0);
        drop(never);
    }
}
