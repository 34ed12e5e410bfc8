//! Opening the files of modules: a path chosen by others in, a regular file out.
//!
//! The owner of a target chooses its paths, so a path may lead to a FIFO (opening it hangs), to a
//! device (opening it has side effects) or out of a container through a symbolic link. Each file is
//! therefore first opened with `O_PATH`, which does none of that, checked to be regular, and only
//! then opened for reading through its own descriptor, so that it cannot be exchanged in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};
use thiserror::Error;
use wcprof_types::{Avma, BuildId, Pid};

/// Which file a module was loaded from.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ModuleIdentity {
    /// Path in the target's mount namespace, without ` (deleted)`; `[vdso]` for the vdso.
    pub path: String,
    /// Build-id note of the loaded image; `None` when it has none or it could not be read.
    pub build_id: Option<BuildId>,
    /// A process that maps it, as numbered where it was recorded; `None` when not known.
    pub pid: Option<Pid>,
    /// First mapped address in that process; `None` when not known.
    pub start: Option<Avma>,
}

impl ModuleIdentity {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The bytes of a module.
#[derive(Debug)]
pub enum ModuleFile {
    /// A file; must be a regular one (see [`open_regular`]).
    File(File),
    /// A copy of the image, such as the vdso's.
    Bytes(Vec<u8>),
}

/// Opens files of modules. The caller of symbolization supplies it, since only the caller knows
/// whether the target still lives and how its files can be reached.
pub trait ModuleFiles: Sync {
    /// Opens the module's own file. Its build-id is compared by symbolization, not here.
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError>;

    /// Opens another file of the mount namespace that `module` was loaded in, by its absolute
    /// path: a debug file beside the module.
    fn open_path(&self, module: &ModuleIdentity, path: &Path) -> Result<File, OpenError>;
}

/// Why a file was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("failed to open `{}`: no such file", .0.display())]
    NotFound(PathBuf),
    /// It is a FIFO, device, socket or directory.
    #[error("refused to open `{}`: it is a {kind}, not a regular file", .path.display())]
    NotRegular {
        /// What was to be opened.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The module has no build-id, so that nothing tells whether the file here is the one that
    /// was loaded.
    #[error(
        "refused to open `{}`: the module has no build-id, so that the file here may be another one",
        .0.display()
    )]
    Unverifiable(PathBuf),
    /// The module is not a file (`[vdso]`) and no copy of it is at hand.
    #[error("`{0}` is not a file, and no copy of it is at hand")]
    NotAFile(String),
    /// The system refused.
    #[error("failed to open `{}`: {source}", .path.display())]
    Io {
        /// What was to be opened.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the file is just not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_))
    }

    fn from_errno(path: &Path, errno: nix::Error) -> Self {
        match errno {
            nix::Error::ENOENT | nix::Error::ENOTDIR => Self::NotFound(path.to_owned()),
            _ => Self::Io {
                path: path.to_owned(),
                source: errno.into(),
            },
        }
    }
}

/// Opens a regular file for reading, following symbolic links. Never blocks on a FIFO and never
/// opens a device.
pub fn open_regular(path: &Path) -> Result<File, OpenError> {
    let handle = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| OpenError::from_errno(path, e))?;
    open_handle(&handle, path)
}

/// Opens what an `O_PATH` descriptor refers to, if it is a regular file. `path` is for errors.
fn open_handle(handle: &OwnedFd, path: &Path) -> Result<File, OpenError> {
    let stat = fstat(handle).map_err(|e| OpenError::from_errno(path, e))?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFREG {
        return Err(OpenError::NotRegular {
            path: path.to_owned(),
            kind: kind_name(kind),
        });
    }
    // Through the descriptor: a second look-up of the path could meet another file.
    let again = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    open(&again, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| OpenError::Io {
            path: path.to_owned(),
            source: errno.into(),
        })
}

fn kind_name(kind: SFlag) -> &'static str {
    match kind {
        SFlag::S_IFIFO => "FIFO",
        SFlag::S_IFCHR => "character device",
        SFlag::S_IFBLK => "block device",
        SFlag::S_IFDIR => "directory",
        SFlag::S_IFSOCK => "socket",
        _ => "special file",
    }
}

/// Files of this machine, for traces opened after the recording: the file at the module's path, if
/// the module has a build-id to compare it with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalFiles;

impl ModuleFiles for LocalFiles {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        let path = absolute(&module.path)?;
        if module.build_id.is_none() {
            return Err(OpenError::Unverifiable(path.to_owned()));
        }
        open_regular(path).map(ModuleFile::File)
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<File, OpenError> {
        open_regular(path)
    }
}

/// Files below a root, such as a container's: no symbolic link leads out of it, and magic links
/// (`/proc/PID/exe`) are not followed.
#[derive(Debug)]
pub struct RootedFiles {
    root: OwnedFd,
}

impl RootedFiles {
    /// `root` is a descriptor of the root directory; for a live process, of `/proc/PID/root`.
    pub fn new(root: OwnedFd) -> Self {
        Self { root }
    }

    /// Opens the regular file that `path`, absolute or not, means inside the root.
    ///
    /// Needs `openat2` (Linux 5.6, in 2020).
    pub fn open_regular(&self, path: &Path) -> Result<File, OpenError> {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let handle =
            openat2(&self.root, path, how).map_err(|errno| OpenError::from_errno(path, errno))?;
        open_handle(&handle, path)
    }
}

impl ModuleFiles for RootedFiles {
    fn open(&self, module: &ModuleIdentity) -> Result<ModuleFile, OpenError> {
        self.open_regular(absolute(&module.path)?)
            .map(ModuleFile::File)
    }

    fn open_path(&self, _module: &ModuleIdentity, path: &Path) -> Result<File, OpenError> {
        self.open_regular(path)
    }
}

/// The path of a module that is a file.
fn absolute(path: &str) -> Result<&Path, OpenError> {
    if path.starts_with('/') {
        Ok(Path::new(path))
    } else {
        Err(OpenError::NotAFile(path.to_owned()))
    }
}

#[cfg(test)]
mod tests;
