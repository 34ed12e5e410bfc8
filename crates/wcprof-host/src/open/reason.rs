//! Why a file was not opened.

use std::io;
use std::path::PathBuf;

use rustix::fs::FileType;
use rustix::io::Errno;
use thiserror::Error;

/// A file that was not opened.
#[derive(Debug, Error)]
#[error("failed to open `{}`: {reason}", path.display())]
pub struct OpenError {
    /// What was to be opened, in the mount namespace or below the root that it was looked up in.
    pub path: PathBuf,
    /// Why it was not.
    pub reason: NoFile,
}

impl OpenError {
    /// Whether the file is just not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self.reason, NoFile::NotFound)
    }
}

/// Why there is no open file.
#[derive(Debug, Error)]
pub enum NoFile {
    /// Nothing has this path.
    #[error("no such file")]
    NotFound,
    /// FIFO, device, socket or directory.
    #[error("it is a {}, not a regular file", kind(.0))]
    NotRegular(FileType),
    /// Anything else.
    #[error("it is a {}, not a socket", kind(.0))]
    NotASocket(FileType),
    /// It has no name any more, and `map_files` may not be used.
    #[error(
        "it was deleted or replaced; /proc/PID/map_files still leads to it, with CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE"
    )]
    Deleted,
    /// Its name leads to another file now.
    #[error("it was replaced by another file since it was mapped")]
    Replaced,
    /// Nothing shows that the file is the one that was mapped: most likely its process has exited.
    #[error("it is not mapped any more, or the memory of its process cannot be read")]
    NotMapped,
    /// Somebody else may have put it there.
    #[error("it belongs to user {0}, not to the target's user or root")]
    Owner(u32),
    /// A file on FUSE or 9p is only read from a copy, and there is none.
    #[error("it is on FUSE or 9p, and exceeds the limit for copies, or the disk is full")]
    NoCopy,
    /// The same, as long as others are held.
    #[error("it is on FUSE or 9p, and copies of other files take all the room for copies")]
    NoRoom,
    /// Who asks for it is left behind, or nobody asks again so soon.
    #[error("its file system did not answer in time")]
    NoAnswer,
    /// Others on its mount, or on many mounts, are not closed yet.
    #[error("too many other files still wait for file systems that do not answer")]
    NotClosed,
    /// Nothing tells whether the file here is the one that was loaded.
    #[error("its module has no build-id, so the file here may be another one")]
    NoBuildId,
    /// A module that is not a file (`[vdso]`).
    #[error("it is not a file, and no copy of it is at hand")]
    NotAFile,
    /// The system refused.
    #[error("{0}")]
    System(io::Error),
}

impl NoFile {
    /// Whether there may be an answer later.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::NoAnswer | Self::NotClosed | Self::NoRoom)
    }

    /// The error for this path.
    pub fn at(self, path: impl Into<PathBuf>) -> OpenError {
        OpenError {
            path: path.into(),
            reason: self,
        }
    }
}

impl From<io::Error> for NoFile {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound,
            _ => Self::System(error),
        }
    }
}

impl From<Errno> for NoFile {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

fn kind(kind: &FileType) -> &'static str {
    match kind {
        FileType::Fifo => "FIFO",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Directory => "directory",
        FileType::Socket => "socket",
        FileType::Symlink => "symbolic link",
        FileType::RegularFile => "regular file",
        _ => "special file",
    }
}
