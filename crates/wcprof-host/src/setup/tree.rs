//! Files below a root folder to bytes and text: `/` of this machine, or a copy of `/proc` and `/sys` of
//! another one. Every read has a limit, and what could not be read is noted.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use wcprof_types::Pid;
use wcprof_types::snapshot::{Unread, limits};

use crate::deadline::{Awaited, with_deadline};
use crate::open::{NoFile, Root, open_handle};
use crate::procfs::find_live_task;

/// Files of one value.
const SMALL: usize = 64 << 10;
/// As much as most of them are long, `status` included.
const FIRST_READ: usize = 4 << 10;
/// Entries of a folder.
const MAX_ENTRIES: usize = 1 << 16;

/// At most `limit` bytes of a file, and whether there are more.
pub(super) fn first_bytes(file: File, limit: usize) -> io::Result<(Vec<u8>, bool)> {
    // Room from the start: files of `/proc` tell no size, and each read costs a system call.
    let mut bytes = Vec::with_capacity(limit.min(FIRST_READ));
    file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    let cut = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, cut))
}

/// A root folder.
#[derive(Debug)]
pub(super) struct Tree {
    root: Root,
    /// Real path of the root.
    prefix: PathBuf,
    unread: RefCell<Vec<Unread>>,
    /// Something did not answer, and may later.
    is_silent: Cell<bool>,
    /// Paths that were opened, and the one that is to be refused.
    #[cfg(test)]
    pub(super) opened: RefCell<Vec<String>>,
    #[cfg(test)]
    pub(super) refused: Option<String>,
}

/// Whether the absence of a file is worth a note.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Absent {
    /// Other kernels and hosts lack it.
    Fine,
    /// It is always there.
    Noted,
}

impl Tree {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        Self::below_root(Root::new(root)?)
    }

    fn below_root(root: Root) -> io::Result<Self> {
        Ok(Self {
            prefix: fs::read_link(by_descriptor(&root))?,
            root,
            unread: RefCell::default(),
            is_silent: Cell::new(false),
            #[cfg(test)]
            opened: RefCell::default(),
            #[cfg(test)]
            refused: None,
        })
    }

    /// A tree whose root is the folder or magic link `path` of this one (`/proc/PID/root`).
    pub(super) fn enter(&self, path: &str) -> Option<Self> {
        let entered = self.permit(path).and_then(|()| self.root.enter(path));
        let tree = entered.and_then(Self::below_root).map_err(NoFile::from);
        self.or_note(path, Absent::Noted, tree)
    }

    /// Whether this is the machine that wcprof runs on.
    pub(super) fn is_live(&self) -> bool {
        self.prefix == Path::new("/")
    }

    /// The process whose folder has the memory, files and limits of `pid`; see [`live_task`](crate::procfs::live_task).
    pub(super) fn live_task(&self, pid: Pid) -> Pid {
        let threads = || {
            let names = self.list(&format!("/proc/{pid}/task"), Absent::Fine);
            names.unwrap_or_default().into_iter()
        };
        find_live_task(pid, threads, |path| self.text(&path)).unwrap_or(pid)
    }

    /// What could not be read.
    pub(super) fn into_unread(self) -> Vec<Unread> {
        self.unread.into_inner()
    }

    /// Whether something did not answer, and may later.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.get()
    }

    /// Notes that a file was not opened, and why.
    pub(super) fn not_opened(&self, path: &str, reason: &NoFile) {
        self.is_silent
            .set(self.is_silent.get() || reason.is_silence());
        self.left_out(path, reason.to_string());
    }

    /// Notes that something was left out, and why.
    pub(super) fn left_out(&self, path: &str, reason: impl Into<String>) {
        let mut unread = self.unread.borrow_mut();
        if unread.len() < limits::UNREAD && unread.iter().all(|u| u.path != path) {
            unread.push(Unread {
                path: path.to_owned(),
                reason: reason.into(),
            });
        }
    }

    fn or_note<T>(&self, path: &str, absent: Absent, read: Result<T, NoFile>) -> Option<T> {
        let (is_absent, reason) = match read {
            Ok(read) => return Some(read),
            Err(NoFile::NotFound) => (true, "not there".to_owned()),
            Err(NoFile::System(error)) => match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => (false, "not permitted".to_owned()),
                // Files of some devices exist without content.
                Some(libc::ESRCH | libc::EINVAL | libc::ENODEV) => (true, error.to_string()),
                _ => (false, error.to_string()),
            },
            Err(other) => {
                self.not_opened(path, &other);
                return None;
            }
        };
        if !is_absent || absent == Absent::Noted {
            self.left_out(path, reason);
        }
        None
    }

    /// Tests note each path, and refuse one.
    fn permit(&self, _path: &str) -> io::Result<()> {
        #[cfg(test)]
        {
            self.opened.borrow_mut().push(_path.to_owned());
            if self.refused.as_deref() == Some(_path) {
                return Err(io::Error::from_raw_os_error(libc::EACCES));
            }
        }
        Ok(())
    }

    fn handle(&self, path: &str) -> io::Result<OwnedFd> {
        self.permit(path)?;
        self.root.handle(path)
    }

    /// What `parse` makes of a regular file.
    pub(super) fn parse<T>(
        &self,
        path: &str,
        absent: Absent,
        parse: impl FnOnce(File) -> io::Result<T>,
    ) -> Option<T> {
        let parsed = self.open(path).and_then(|file| Ok(parse(file)?));
        self.or_note(path, absent, parsed)
    }

    fn open(&self, path: &str) -> Result<File, NoFile> {
        let handle = self.handle(path)?;
        let (file, _) = open_handle(&handle)?;
        Ok(file.into())
    }

    /// What `parse` makes of a file in `/proc/PID` for which the kernel takes the lock of the process's memory: the process
    /// may hold it for ever.
    pub(super) fn parse_locked<T: Send + 'static>(
        &self,
        pid: Pid,
        name: &str,
        absent: Absent,
        parse: impl FnOnce(File) -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let path = format!("/proc/{pid}/{name}");
        let parsed = self.handle(&path).map_err(NoFile::from);
        let parsed = parsed.and_then(|handle| {
            // Opening it takes the lock, too.
            let call = move || Ok(parse(open_handle(&handle)?.0.into())?);
            with_deadline(Awaited::Lock(pid), call).unwrap_or(Err(NoFile::NoAnswer))
        });
        self.or_note(&path, absent, parsed)
    }

    /// At most `limit` bytes of a regular file, and whether there are more.
    pub(super) fn bytes(
        &self,
        path: &str,
        limit: usize,
        absent: Absent,
    ) -> Option<(Vec<u8>, bool)> {
        self.parse(path, absent, |file| first_bytes(file, limit))
    }

    /// A whole text file; bytes that are not UTF-8 are replaced. A longer one is cut, and noted.
    pub(super) fn long_text(&self, path: &str, limit: usize, absent: Absent) -> Option<String> {
        let read = self.bytes(path, limit, absent)?;
        Some(self.noted_text(path, limit, read))
    }

    /// The same for a file like those of [`Self::parse_locked`].
    pub(super) fn locked_text(
        &self,
        pid: Pid,
        name: &str,
        limit: usize,
        absent: Absent,
    ) -> Option<String> {
        let first = move |file| first_bytes(file, limit);
        let read = self.parse_locked(pid, name, absent, first)?;
        Some(self.noted_text(&format!("/proc/{pid}/{name}"), limit, read))
    }

    fn noted_text(&self, path: &str, limit: usize, (bytes, cut): (Vec<u8>, bool)) -> String {
        if cut {
            self.left_out(
                path,
                format!("longer than {limit} bytes; the rest was not read"),
            );
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A small file of `/proc` or `/sys` without white space around it.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let (bytes, _) = self.bytes(path, SMALL, Absent::Fine)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A number in a file of its own.
    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// Names in a folder, sorted; numbers by value. `None` when it cannot be read.
    pub(super) fn list(&self, path: &str, absent: Absent) -> Option<Vec<String>> {
        let listed = self.handle(path).and_then(|handle| {
            // A thread that exits while its folder is read ends the listing early.
            let folder = fs::read_dir(by_descriptor(&handle))?;
            let mut names = folder.map_while(Result::ok);
            let first = names.by_ref().take(MAX_ENTRIES);
            let mut first: Vec<String> = first
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            first.sort_by_key(|name| (name.parse().unwrap_or(u64::MAX), name.clone()));
            if names.next().is_some() {
                self.left_out(
                    path,
                    format!("more than {MAX_ENTRIES} entries; the rest was not read"),
                );
            }
            Ok(first)
        });
        self.or_note(path, absent, listed.map_err(NoFile::from))
    }

    /// Names in a folder that other kernels and hosts may lack.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        self.list(path, Absent::Fine).unwrap_or_default()
    }

    /// Whether a folder is there.
    pub(super) fn has_folder(&self, path: &str) -> bool {
        self.list(path, Absent::Fine).is_some()
    }

    /// Where a symbolic link points to, as it is written.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let (folder, name) = path.rsplit_once('/')?;
        self.links(folder)(name)
    }

    /// The same for each name in a folder, which is opened once.
    pub(super) fn links(&self, folder: &str) -> impl Fn(&str) -> Option<String> {
        let handle = self.handle(folder).ok();
        move |name| {
            self.permit(&format!("{folder}/{name}")).ok()?;
            // Not followed, so that a magic link is read and not opened.
            let target = fs::read_link(by_descriptor(handle.as_ref()?).join(name)).ok()?;
            Some(target.to_string_lossy().into_owned())
        }
    }

    /// The inode of a file or folder; `None` in a copy, where it says nothing.
    pub(super) fn inode(&self, path: &str) -> Option<u64> {
        let handle = self.is_live().then(|| self.handle(path).ok())??;
        Some(fs::metadata(by_descriptor(&handle)).ok()?.ino())
    }

    /// The path of a file or folder without links, as seen inside the root.
    pub(super) fn real(&self, path: &str) -> Option<String> {
        let handle = self.handle(path).ok()?;
        let real = fs::read_link(by_descriptor(&handle)).ok()?;
        let inside = real.strip_prefix(&self.prefix).ok()?;
        Some(format!("/{}", inside.to_string_lossy()))
    }
}

/// A path to what a handle refers to.
fn by_descriptor(handle: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd()))
}

/// `key: value` lines.
pub(super) fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
}

/// The value of a `key: value` line.
pub(super) fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    fields(text).find(|(name, _)| *name == key).map(|(_, v)| v)
}

/// The number that `12 kB` begins with.
pub(super) fn leading_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}
