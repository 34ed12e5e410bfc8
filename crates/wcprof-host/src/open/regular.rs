//! A path, as it is or below a root, to a regular file that is open for reading.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;
use rustix::path::Arg;
use wcprof_types::Pid;

use super::closing::TargetFile;
use super::reason::{NoFile, OpenError};
use crate::procfs::live_folder;

/// Opens a regular file of this machine. Links are followed.
///
/// # Errors
/// When there is none; never blocks on a FIFO and never opens a device.
pub fn open_regular(path: &Path) -> Result<File, OpenError> {
    let opened = handle(path)
        .map_err(NoFile::from)
        .and_then(|handle| open_handle(&handle));
    opened.map(|(file, _)| file.into()).map_err(|e| e.at(path))
}

/// What makes two files the same one with the same content.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// Inode on it.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When it was last changed: s and ns since 1970.
    pub changed: (i64, i64),
    /// What is open is a copy: the numbers are what a server says of the file, and another one may say the same later.
    pub is_copy: bool,
}

impl FileIdentity {
    pub(super) fn of(stat: &Stat, is_copy: bool) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            changed: (stat.st_ctime, stat.st_ctime_nsec.cast_signed()),
            is_copy,
        }
    }
}

/// What a path leads to, not opened. This is the only way into a magic link.
pub(super) fn handle(path: impl Arg) -> Result<OwnedFd, Errno> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a handle's file for reading if it is a regular one.
pub(crate) fn open_handle(handle: impl AsFd) -> Result<(OwnedFd, Stat), NoFile> {
    let handle = handle.as_fd();
    let stat = fstat(handle)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(NoFile::NotRegular(kind));
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok((open(path, flags, Mode::empty())?, stat))
}

/// A folder below which paths are looked up: a process's root, or a copy of another machine's.
///
/// Paths may be absolute or not; neither they nor links lead out of it, and magic links are refused. Needs
/// `openat2` (Linux 5.6, in 2020).
#[derive(Clone, Debug)]
pub struct Root(TargetFile);

impl Root {
    /// A folder of this machine.
    ///
    /// # Errors
    /// When it is not there, or no folder.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(TargetFile::handle(open(
            folder,
            flags,
            Mode::empty(),
        )?)))
    }

    /// The root of a live process: `/proc/PID/root`.
    ///
    /// # Errors
    /// When the process has exited, or may not be looked at.
    pub(crate) fn of_process(pid: Pid) -> io::Result<Self> {
        Self::new(Path::new(&format!("{}/root", live_folder(pid))))
    }

    /// Opens a regular file below it.
    ///
    /// # Errors
    /// When there is none.
    pub fn open_regular(&self, path: &Path) -> Result<File, OpenError> {
        let handle = handle_below(self.0.as_fd(), path, OFlags::empty()).map_err(NoFile::from);
        let opened = handle.and_then(|handle| open_handle(&handle));
        opened.map(|(file, _)| file.into()).map_err(|e| e.at(path))
    }

    /// What a path below it leads to, not opened, if it belongs to `uid` or root. It must not be a symbolic link itself.
    pub(super) fn owned_handle(&self, path: &Path, uid: u32) -> Result<OwnedFd, NoFile> {
        let handle = handle_below(self.0.as_fd(), path, OFlags::NOFOLLOW)?;
        match fstat(&handle)?.st_uid {
            owner if owner == 0 || owner == uid => Ok(handle),
            owner => Err(NoFile::Owner(owner)),
        }
    }

    /// What a path below it leads to, not opened.
    pub(crate) fn handle(&self, path: impl Arg) -> io::Result<OwnedFd> {
        Ok(handle_below(self.0.as_fd(), path, OFlags::empty())?)
    }

    /// A socket below it, not connected to. Below `/proc/self/fd` it has a name that nobody can exchange.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn socket(&self, path: &Path) -> Result<OwnedFd, OpenError> {
        let found = || {
            let handle = handle_below(self.0.as_fd(), path, OFlags::empty())?;
            match FileType::from_raw_mode(fstat(&handle)?.st_mode) {
                FileType::Socket => Ok(handle),
                kind => Err(NoFile::NotASocket(kind)),
            }
        };
        found().map_err(|reason: NoFile| reason.at(path))
    }

    /// The folder at a path below it, as a root of its own. The last part of the path may be a magic link.
    pub(crate) fn enter(&self, path: &str) -> io::Result<Self> {
        match handle_below(self.0.as_fd(), path, OFlags::DIRECTORY) {
            Err(Errno::LOOP) => {}
            entered => return Ok(Self(TargetFile::handle(entered?))),
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        let folder = self.handle(folder)?;
        Self::new(Path::new(&format!(
            "/proc/self/fd/{}/{name}",
            folder.as_raw_fd()
        )))
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a path below `root` leads to, not opened.
fn handle_below(root: BorrowedFd<'_>, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// Check that a FIFO, a device and a directory are refused by kind, without hanging.
    #[test]
    fn refuses_special_files() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for (path, expected) in [
            (fifo.as_path(), "FIFO"),
            (Path::new("/dev/zero"), "character device"),
            (dir.path(), "directory"),
        ] {
            let error = open_regular(path).unwrap_err();
            assert!(matches!(error.reason, NoFile::NotRegular(_)), "{error}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    /// Check that a missing file, also below a file, is told apart from other failures.
    #[test]
    fn missing() {
        for path in ["/nonexistent/x", "/proc/version/x"] {
            let error = open_regular(Path::new(path)).unwrap_err();
            assert!(error.is_not_found(), "{error}");
        }
    }

    /// Check that below a root absolute paths, absolute links and `..` stay inside.
    #[test]
    fn stays_below_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        std::fs::write(root.join("secret"), "inside").unwrap();
        symlink("/secret", root.join("absolute")).unwrap();
        symlink("../secret", root.join("parent")).unwrap();
        let files = Root::new(&root).unwrap();
        for path in ["/secret", "/absolute", "/parent", "/../secret"] {
            let mut text = String::new();
            let mut file = files.open_regular(Path::new(path)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{path}");
        }
    }

    /// Check that magic links are not followed below a root, and are entered on purpose.
    #[test]
    fn magic_links() {
        let root = Root::new(Path::new("/")).unwrap();
        assert!(root.open_regular(Path::new("/proc/self/exe")).is_err());
        assert!(
            root.open_regular(Path::new("/proc/self/root/proc/version"))
                .is_err()
        );
        let entered = root.enter("/proc/self/root").unwrap();
        assert!(entered.open_regular(Path::new("/proc/version")).is_ok());
    }
}
