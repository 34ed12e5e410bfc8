//! Files below a root folder to bytes and text: `/` of this machine, or a copy of `/proc` and `/sys` of
//! another one. No link leads out of the root, only regular files are opened, and every read has
//! a limit. What could not be read is noted.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use wcprof_types::snapshot::Unread;

use crate::opener::{is_regular, reopen};

/// Files of one value.
const SMALL: usize = 64 << 10;
/// As much as most of them are long, `status` included.
const FIRST_READ: usize = 4 << 10;
/// Entries of a folder.
const MAX_ENTRIES: usize = 1 << 16;
/// Notes on what could not be read.
const MAX_UNREAD: usize = 64;

/// A root folder.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// Real path of the root, without a slash at its end.
    prefix: PathBuf,
    unread: RefCell<Vec<Unread>>,
    /// Paths that were opened, and the one that is to be refused.
    #[cfg(test)]
    pub(crate) opened: RefCell<Vec<String>>,
    #[cfg(test)]
    pub(crate) refused: Option<String>,
}

/// Whether the absence of a file is worth a note.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    /// Other kernels and hosts lack it.
    Fine,
    /// It is always there.
    Noted,
}

impl Tree {
    pub(crate) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: open(
                root,
                OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )?,
            prefix: fs::canonicalize(root)?,
            unread: RefCell::default(),
            #[cfg(test)]
            opened: RefCell::default(),
            #[cfg(test)]
            refused: None,
        })
    }

    /// A tree whose root is the folder or magic link `path` of this one (`/proc/PID/root`).
    pub(crate) fn below(&self, path: &str) -> Option<Self> {
        let handle = self.handle(path, false);
        let handle = handle
            .map_err(|e| self.note(path, &e, Absent::Noted))
            .ok()?;
        let prefix = fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?;
        Some(Self {
            root: handle,
            prefix,
            unread: RefCell::default(),
            #[cfg(test)]
            opened: RefCell::default(),
            #[cfg(test)]
            refused: None,
        })
    }

    /// Whether this is the machine that wcprof runs on.
    pub(crate) fn is_live(&self) -> bool {
        self.prefix == Path::new("/")
    }

    /// What could not be read.
    pub(crate) fn into_unread(self) -> Vec<Unread> {
        self.unread.into_inner()
    }

    /// Notes that something was left out, and why.
    pub(crate) fn left_out(&self, path: &str, reason: impl Into<String>) {
        let mut unread = self.unread.borrow_mut();
        if unread.len() < MAX_UNREAD && unread.iter().all(|u| u.path != path) {
            unread.push(Unread {
                path: path.to_owned(),
                reason: reason.into(),
            });
        }
    }

    fn note(&self, path: &str, error: &io::Error, absent: Absent) {
        let gone = matches!(
            error.raw_os_error(),
            Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR)
        );
        // Files of some devices exist without content.
        let empty = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENODEV));
        if !((gone || empty) && absent == Absent::Fine) {
            let reason = match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => "not permitted".to_owned(),
                Some(libc::ENOENT) => "not there".to_owned(),
                _ => error.to_string(),
            };
            self.left_out(path, reason);
        }
    }

    fn handle(&self, path: &str, confined: bool) -> io::Result<OwnedFd> {
        #[cfg(test)]
        {
            self.opened.borrow_mut().push(path.to_owned());
            if self.refused.as_deref() == Some(path) {
                return Err(io::Error::from_raw_os_error(libc::EACCES));
            }
        }
        let mut resolve = ResolveFlag::RESOLVE_IN_ROOT;
        if confined {
            resolve |= ResolveFlag::RESOLVE_NO_MAGICLINKS;
        }
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(resolve);
        if confined {
            return Ok(openat2(&self.root, Path::new(path), how)?);
        }
        // The kernel refuses magic links below RESOLVE_IN_ROOT: that one link is followed by name.
        let name = format!(
            "/proc/self/fd/{}/{}",
            self.root.as_raw_fd(),
            path.trim_start_matches('/')
        );
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY;
        Ok(open(Path::new(&name), flags, Mode::empty())?)
    }

    /// A regular file, open for reading.
    pub(crate) fn file(&self, path: &str) -> io::Result<File> {
        let handle = self.handle(path, true)?;
        if !is_regular(&fstat(&handle)?) {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(reopen(&handle)?.into())
    }

    /// At most `limit` bytes of a file, and whether there are more.
    pub(crate) fn bytes(
        &self,
        path: &str,
        limit: usize,
        absent: Absent,
    ) -> Option<(Vec<u8>, bool)> {
        let read = self.file(path).and_then(|file| {
            // Room from the start: files of `/proc` tell no size, and each read costs a system call.
            let mut bytes = Vec::with_capacity(limit.min(FIRST_READ));
            file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(mut bytes) => {
                let cut = bytes.len() > limit;
                bytes.truncate(limit);
                Some((bytes, cut))
            }
            Err(error) => {
                self.note(path, &error, absent);
                None
            }
        }
    }

    /// A whole text file; bytes that are not UTF-8 are replaced. A longer one is cut, and noted.
    pub(crate) fn long_text(&self, path: &str, limit: usize, absent: Absent) -> Option<String> {
        let (bytes, cut) = self.bytes(path, limit, absent)?;
        if cut {
            self.left_out(
                path,
                format!("longer than {limit} bytes; the rest was not read"),
            );
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A small file of `/proc` or `/sys` without white space around it.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let (bytes, _) = self.bytes(path, SMALL, Absent::Fine)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A number in a file of its own.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a folder, sorted; numbers by value.
    pub(crate) fn list(&self, path: &str, absent: Absent) -> Option<Vec<String>> {
        let listed = self.handle(path, true).and_then(|handle| {
            let folder = fs::read_dir(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
            // A thread that exits while its folder is read ends the listing early.
            let names = folder.take(MAX_ENTRIES).map_while(Result::ok);
            let mut names: Vec<String> = names
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort_by_key(|name| (name.parse().unwrap_or(u64::MAX), name.clone()));
            Ok(names)
        });
        match listed {
            Ok(names) => Some(names),
            Err(error) => {
                self.note(path, &error, absent);
                None
            }
        }
    }

    /// Where a symbolic link points to, as it is written.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        #[cfg(test)]
        if self.refused.as_deref() == Some(path) {
            return None;
        }
        let (folder, name) = path.rsplit_once('/')?;
        let handle = self.handle(folder, true).ok()?;
        // Not followed, so that a magic link is read and not opened.
        let target = fs::read_link(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd())).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// The path of a file or folder without links, as seen inside the root.
    pub(crate) fn real(&self, path: &str) -> Option<String> {
        let handle = self.handle(path, true).ok()?;
        let real = fs::read_link(format!("/proc/self/fd/{}", handle.as_raw_fd())).ok()?;
        let inside = real.strip_prefix(&self.prefix).ok()?;
        Some(format!("/{}", inside.to_string_lossy()))
    }
}
