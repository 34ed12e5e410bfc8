//! Opens the files that a live target maps, through the mapping and not by name: containers and
//! deleted or replaced files are right, and no path leads out of the target's root.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use thiserror::Error;
use wcprof_types::{Avma, Mapping, Pid};

use crate::memory::read_memory;

/// The first bytes of a file and of its mapping are compared: ELF header, program headers and, in
/// practice, the build-id note.
const COMPARED: usize = 4096;
/// A vdso has two pages; more than this is not one.
const MAX_VDSO: u64 = 1 << 20;
/// File systems whose server may not answer.
const REMOTE: [&str; 10] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "9p",
    "afs",
    "glusterfs",
    "lustre",
    "virtiofs",
];

/// What does not answer within this is done without.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a mapped file was not opened.
#[derive(Debug, Error)]
pub enum LiveFileError {
    /// FIFO, device, socket or directory.
    #[error("`{0}` is not a regular file")]
    NotRegular(String),
    /// Deleted, and `map_files` may not be used.
    #[error(
        "`{0}` was deleted or replaced; opening it through /proc/PID/map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE"
    )]
    Deleted(String),
    /// The name leads to another file now.
    #[error("`{0}` was replaced by another file since it was mapped")]
    Replaced(String),
    /// Somebody else may have put it there.
    #[error("`{path}` belongs to user {found}, not to the target's user or root")]
    Owner {
        /// Its path in the target.
        path: String,
        /// Its owner.
        found: u32,
    },
    /// Anything else.
    #[error("failed to open `{path}`: {source}")]
    Io {
        /// Its path in the target.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl LiveFileError {
    /// What becomes of the system's errors with this path in the target.
    fn io(path: &str) -> impl Fn(io::Error) -> Self + '_ {
        |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// Opens files of one target.
#[derive(Debug)]
pub struct LiveFiles {
    pid: Pid,
    root: Option<OwnedFd>,
    /// Devices of file systems that may hang.
    remote: Vec<(u32, u32)>,
    /// One of them did: no other path is tried.
    hung: AtomicBool,
}

impl LiveFiles {
    /// Looks at the target's root and mounts; what cannot be read narrows what can be opened.
    pub fn new(pid: Pid) -> Self {
        let mounts = fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        Self {
            pid,
            root: open(
                Path::new(&format!("/proc/{pid}/root")),
                OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )
            .ok(),
            remote: remote_devices(&String::from_utf8_lossy(&mounts)),
            hung: AtomicBool::new(false),
        }
    }

    /// Whether the target's root could be opened: not when it had exited by then.
    pub fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// Whether reading the file may hang on a server (network file system, FUSE): read it with a
    /// time-out.
    pub fn may_hang(&self, mapping: &Mapping) -> bool {
        self.remote.contains(&mapping.device)
    }

    /// Opens the file of a mapping.
    pub fn open_mapping(&self, mapping: &Mapping) -> Result<File, LiveFileError> {
        let name = format!("{:x}-{:x}", mapping.start.0, mapping.end.0);
        let link = PathBuf::from(format!("/proc/{}/map_files/{name}", self.pid));
        match open_path(&link) {
            Ok(handle) if self.may_hang(mapping) => {
                let path = mapping.path.clone();
                self.in_time(&mapping.path, move || reopen(&handle, &path))
            }
            Ok(handle) => reopen(&handle, &mapping.path),
            Err(_) => self.open_by_name(mapping),
        }
    }

    fn open_by_name(&self, mapping: &Mapping) -> Result<File, LiveFileError> {
        let exe = PathBuf::from(format!("/proc/{}/exe", self.pid));
        if fs::read_link(&exe).is_ok_and(|p| p.to_string_lossy() == mapping.path)
            && let Ok(handle) = open_path(&exe)
        {
            return reopen(&handle, &mapping.path);
        }
        if mapping.path.ends_with(" (deleted)") {
            return Err(LiveFileError::Deleted(mapping.path.clone()));
        }
        let file = self.open_regular(Path::new(&unescape(&mapping.path)))?;
        let same = fstat(&file).is_ok_and(|s| {
            let device = (major(s.st_dev) as u32, minor(s.st_dev) as u32);
            // Btrfs and overlay show another device in `maps` than in `stat`: the first bytes are
            // compared with the target's memory in any case.
            s.st_ino == mapping.inode || device != mapping.device
        });
        if !same {
            return Err(LiveFileError::Replaced(mapping.path.clone()));
        }
        if mapping.offset.0 == 0 && !self.begins_like(&file, mapping.start) {
            return Err(LiveFileError::Replaced(mapping.path.clone()));
        }
        Ok(file)
    }

    /// Opens a regular file by its absolute path in the target's mount namespace; symbolic links
    /// cannot lead out of its root.
    pub fn open_regular(&self, path: &Path) -> Result<File, LiveFileError> {
        self.open_in_time(path, OFlag::empty(), None)
    }

    /// Opens a regular file that belongs to `uid` or root, by its absolute path in the target's mount
    /// namespace; it must not be a symbolic link itself.
    pub fn open_owned(&self, path: &Path, uid: u32) -> Result<File, LiveFileError> {
        self.open_in_time(path, OFlag::O_NOFOLLOW, Some(uid))
    }

    /// Opens a path, a part of which may be on a server that hangs.
    fn open_in_time(
        &self,
        path: &Path,
        flags: OFlag,
        owner: Option<u32>,
    ) -> Result<File, LiveFileError> {
        let name = path.to_string_lossy();
        let failed = LiveFileError::io(&name);
        let root = self.root.as_ref();
        let root = root.ok_or_else(|| failed(io::ErrorKind::PermissionDenied.into()))?;
        if self.remote.is_empty() {
            return open_checked(root, path, flags, owner);
        }
        let (root, path) = (root.try_clone().map_err(failed)?, path.to_owned());
        self.in_time(&name, move || open_checked(&root, &path, flags, owner))
    }

    /// Runs `open` on a thread of its own, which is left behind when nothing answers: it holds two
    /// descriptors and nothing else. `name` is for errors.
    fn in_time(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<File, LiveFileError> + Send + 'static,
    ) -> Result<File, LiveFileError> {
        let failed = LiveFileError::io(name);
        let no_answer = || failed(io::Error::new(io::ErrorKind::TimedOut, NO_ANSWER));
        if self.hung.load(Ordering::Relaxed) {
            return Err(no_answer());
        }
        let (tx, rx) = mpsc::channel();
        std::thread::spawn(move || {
            let opened = open();
            if let Ok(file) = &opened {
                // What answers now will be read without a limit of time.
                let _ = file.read_at(&mut [0], 0);
            }
            let _ = tx.send(opened);
        });
        rx.recv_timeout(REMOTE_TIMEOUT).unwrap_or_else(|_| {
            self.hung.store(true, Ordering::Relaxed);
            Err(no_answer())
        })
    }

    fn begins_like(&self, file: &File, start: Avma) -> bool {
        let (mut on_disk, mut in_memory) = ([0; COMPARED], [0; COMPARED]);
        let read = file.read_at(&mut on_disk, 0).unwrap_or(0);
        let mapped = read_memory(self.pid, start, &mut in_memory).unwrap_or(0);
        let n = read.min(mapped);
        n >= 64 && on_disk[..n] == in_memory[..n]
    }

    /// A copy of the vdso.
    pub fn vdso(&self, mapping: &Mapping) -> Option<Vec<u8>> {
        let size = mapping.end.0.checked_sub(mapping.start.0)?;
        let mut bytes = vec![0; usize::try_from(size.min(MAX_VDSO)).ok()?];
        let n = read_memory(self.pid, mapping.start, &mut bytes).ok()?;
        bytes.truncate(n);
        Some(bytes)
    }
}

const NO_ANSWER: &str = "its file system did not answer within 2 s";

/// Opens a regular file below a root, which no link leads out of. `owner`: it must belong to this
/// user or to root.
fn open_checked(
    root: &OwnedFd,
    path: &Path,
    flags: OFlag,
    owner: Option<u32>,
) -> Result<File, LiveFileError> {
    let name = path.to_string_lossy();
    let failed = LiveFileError::io(&name);
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let handle = openat2(root, path, how).map_err(|e| failed(e.into()))?;
    if let Some(uid) = owner {
        let found = fstat(&handle).map_err(|e| failed(e.into()))?.st_uid;
        if found != uid && found != 0 {
            return Err(LiveFileError::Owner {
                path: name.to_string(),
                found,
            });
        }
    }
    reopen(&handle, &name)
}

/// `O_PATH`: neither hangs on a FIFO nor touches a device.
fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Opens what a handle refers to for reading, if it is a regular file.
fn reopen(handle: &OwnedFd, name: &str) -> Result<File, LiveFileError> {
    let failed = LiveFileError::io(name);
    let stat = fstat(handle).map_err(|e| failed(e.into()))?;
    if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
        return Err(LiveFileError::NotRegular(name.to_owned()));
    }
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    open(Path::new(&path), flags, Mode::empty())
        .map(File::from)
        .map_err(|e| failed(e.into()))
}

/// The kernel writes a newline in a path as `\012` (`seq_file_path`, `fs/seq_file.c`).
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// Devices of network and FUSE file systems in `/proc/PID/mountinfo` (proc(5)).
fn remote_devices(mountinfo: &str) -> Vec<(u32, u32)> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, super_block) = line.split_once(" - ")?;
            let kind = super_block.split(' ').next()?;
            if !REMOTE.contains(&kind) && !kind.starts_with("fuse") {
                return None;
            }
            let (major, minor) = mount.split(' ').nth(2)?.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;

    use wcprof_types::parse_maps;

    use super::*;

    fn me() -> Pid {
        Pid(std::process::id() as i32)
    }

    fn own_mappings() -> Vec<Mapping> {
        parse_maps(&fs::read_to_string("/proc/self/maps").unwrap()).unwrap()
    }

    /// Check that this process's own program is opened both through its mapping and by name, and
    /// that both are the same file.
    #[test]
    fn own_program() {
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let mappings = own_mappings();
        let first = mappings.iter().find(|m| Path::new(&m.path) == exe).unwrap();
        let files = LiveFiles::new(me());
        let inode = fs::metadata(&exe).unwrap().ino();
        let by_mapping = files.open_mapping(first).unwrap();
        let by_name = files.open_by_name(first).unwrap();
        assert_eq!(by_mapping.metadata().unwrap().ino(), inode);
        assert_eq!(by_name.metadata().unwrap().ino(), inode);
        assert!(!files.may_hang(first) || !files.remote.is_empty());
    }

    /// Check that the vdso is an ELF image.
    #[test]
    fn vdso() {
        let mappings = own_mappings();
        let Some(vdso) = mappings.iter().find(|m| m.path == "[vdso]") else {
            return;
        };
        let bytes = LiveFiles::new(me()).vdso(vdso).unwrap();
        assert_eq!(&bytes[..4], b"\x7fELF");
    }

    /// Check that a FIFO is refused at once, and that a link cannot leave the root.
    #[test]
    fn refuses() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let mut files = LiveFiles::new(me());
        let error = files.open_regular(&fifo).unwrap_err();
        assert!(matches!(error, LiveFileError::NotRegular(_)), "{error}");
        // With the folder as root, a link to /etc/passwd is looked for inside it.
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        files.root = Some(open_path(folder.path()).unwrap());
        assert!(files.open_regular(Path::new("/link")).is_err());
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("etc/passwd"), "inside").unwrap();
        let mut text = String::new();
        let mut file = files.open_regular(Path::new("/link")).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }

    /// Check that a file of another user, a link and a FIFO are no files of the target's own.
    #[test]
    fn owned() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = LiveFiles::new(me());
        files.root = Some(open_path(folder.path()).unwrap());
        let uid = nix::unistd::geteuid().as_raw();
        let map = folder.path().join("perf-1.map");
        fs::write(&map, "1 1 a\n").unwrap();
        std::os::unix::fs::symlink("/perf-1.map", folder.path().join("link")).unwrap();
        nix::unistd::mkfifo(&folder.path().join("fifo"), Mode::S_IRUSR).unwrap();
        assert!(files.open_owned(Path::new("/perf-1.map"), uid).is_ok());
        for refused in ["/link", "/fifo"] {
            let error = files.open_owned(Path::new(refused), uid).unwrap_err();
            assert!(matches!(error, LiveFileError::NotRegular(_)), "{error}");
        }
        let error = files.open_owned(Path::new("/perf-2.map"), uid).unwrap_err();
        assert!(matches!(error, LiveFileError::Io { .. }), "{error}");
        if uid != 0 {
            let error = files
                .open_owned(Path::new("/perf-1.map"), uid + 1)
                .unwrap_err();
            assert!(matches!(error, LiveFileError::Owner { .. }), "{error}");
        } else if nix::unistd::chown(&map, Some(12345.into()), None).is_ok() {
            let error = files
                .open_owned(Path::new("/perf-1.map"), 54321)
                .unwrap_err();
            assert!(
                matches!(error, LiveFileError::Owner { found: 12345, .. }),
                "{error}"
            );
        }
    }

    /// Check which mounts count as remote.
    #[test]
    fn mounts() {
        let text = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                    40 22 0:52 / /mnt/a\\040b rw shared:3 - nfs4 srv:/x rw\n\
                    41 22 0:53 / /f rw - fuse.sshfs x rw\nrubbish\n";
        assert_eq!(remote_devices(text), [(0, 52), (0, 53)]);
    }
}
