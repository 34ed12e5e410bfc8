//! A path to the folder that it leads to and what is there, link by link: those that other users may have planted
//! are not followed.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use wcprof_host::own_files::is_trusted;

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

/// Where an output goes: neither a renamed folder nor an exchanged link changes it.
#[derive(Debug)]
pub(super) struct Place {
    folder: Handle,
    name: OsString,
    pub(super) found: Found,
}

/// What is there already.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    /// A regular file; `None` for a link to one, to nothing, or of another user.
    File(Option<Handle>),
    Device(Device),
}

#[derive(Debug)]
pub(super) enum Device {
    /// A pipe or a device.
    Special(Handle),
    /// An open file of a process (`/dev/stdout`): a path that only the kernel can follow.
    OpenFile(PathBuf),
}

/// A file or folder that is held by the kernel, and not opened.
#[derive(Debug)]
pub(super) struct Handle(File);

impl Handle {
    fn open(folder: impl AsFd, name: &OsString, more: OFlag) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | more;
        let opened = openat(folder, name.as_os_str(), flags, Mode::empty())?;
        Ok(Self(opened.into()))
    }

    pub(super) fn path(&self) -> PathBuf {
        path_of(&self.0)
    }
}

impl Device {
    pub(super) fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match self {
            Self::Special(handle) => options.write(true).open(handle.path()),
            // What was written to it before stays.
            Self::OpenFile(path) => options.append(true).open(path),
        }
    }
}

impl Place {
    /// # Errors
    /// When a folder of the path is missing, the path is that of a folder, or a link or pipe in it may be planted.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let mut walk = Walk {
            folder: Handle::open(nix::fcntl::AT_FDCWD, &".".into(), OFlag::O_DIRECTORY)?,
            rest: components(path),
            link: None,
            n_links: 0,
        };
        loop {
            walk = match walk.step()? {
                ControlFlow::Break(place) => return Ok(place),
                ControlFlow::Continue(walk) => walk,
            };
        }
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.folder.path()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder().join(&self.name)
    }
}

/// A path of which a part is walked.
struct Walk {
    folder: Handle,
    /// Names that are still ahead, the next one last.
    rest: Vec<OsString>,
    /// The link that the path ends with.
    link: Option<Place>,
    n_links: usize,
}

impl Walk {
    fn step(mut self) -> io::Result<ControlFlow<Place, Self>> {
        let name = self.rest.pop().ok_or(Errno::ENOENT)?;
        let is_last = self.rest.is_empty();
        let entry = match Handle::open(&self.folder.0, &name, OFlag::O_NOFOLLOW) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && (is_last || self.link.is_some()) => {
                return Ok(self.end(name, Found::Nothing));
            }
            opened => opened?,
        };
        let metadata = entry.0.metadata()?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return self.follow(name, &entry, &metadata);
        }
        if !is_last {
            self.folder = entry;
            return Ok(ControlFlow::Continue(self));
        }
        if kind.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        if kind.is_file() {
            return Ok(self.end(name, Found::File(Some(entry))));
        }
        // Only root makes devices.
        if kind.is_fifo() && !is_trusted(metadata.uid()) {
            return Err(refused("the pipe"));
        }
        Ok(self.end(name, Found::Device(Device::Special(entry))))
    }

    fn follow(
        mut self,
        name: OsString,
        link: &Handle,
        metadata: &Metadata,
    ) -> io::Result<ControlFlow<Place, Self>> {
        let is_last = self.rest.is_empty();
        if fstatfs(&link.0)?.filesystem_type() == PROC_SUPER_MAGIC {
            if is_last {
                let path = self.folder.path().join(&name);
                return Ok(self.end(name, Found::Device(Device::OpenFile(path))));
            }
            self.folder = Handle::open(&self.folder.0, &name, OFlag::O_DIRECTORY)?;
            return Ok(ControlFlow::Continue(self));
        }
        if is_last && !is_trusted(metadata.uid()) {
            return Ok(self.end(name, Found::File(None)));
        }
        if !is_trusted(metadata.uid()) {
            return Err(refused("a link in the path"));
        }
        self.n_links += 1;
        if self.n_links > MAX_LINKS {
            return Err(Errno::ELOOP.into());
        }
        if is_last && self.link.is_none() {
            self.link = Some(Place {
                folder: Handle(self.folder.0.try_clone()?),
                name,
                found: Found::File(None),
            });
        }
        let target = readlinkat(&link.0, "")?;
        self.rest.extend(components(Path::new(&target)));
        Ok(ControlFlow::Continue(self))
    }

    /// A link at the end of the path is followed to devices only.
    fn end(self, name: OsString, found: Found) -> ControlFlow<Place, Self> {
        ControlFlow::Break(match (self.link, found) {
            (Some(link), Found::Nothing | Found::File(_)) => link,
            (_, found) => Place {
                folder: self.folder,
                name,
                found,
            },
        })
    }
}

/// The names of a path, the first one last.
fn components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names.map(|name| name.as_os_str().to_owned()).collect()
}

/// A path that leads to an open file, whatever happens to the one by which it was opened.
pub(crate) fn path_of(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn refused(what: &str) -> io::Error {
    let text = format!("{what} belongs to another user, who may have planted it");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}
