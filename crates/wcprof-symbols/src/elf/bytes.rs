//! Bounded reads from a file or from memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::ElfError;

/// Where the bytes of an ELF file come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A regular file and its length when it was opened.
    File(File, u64),
    /// A copy in memory.
    Bytes(Vec<u8>),
}

impl Source {
    pub(super) fn from_file(file: File) -> Result<Self, ElfError> {
        let metadata = file.metadata().map_err(|source| ElfError::Io {
            what: "file status".to_owned(),
            source,
        })?;
        if !metadata.is_file() {
            return Err(ElfError::NotRegular);
        }
        Ok(Self::File(file, metadata.len()))
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Size, time of change and inode of a file: others are another file. `None` for memory.
    pub(super) fn stamp(&self) -> Option<String> {
        let Self::File(file, _) = self else {
            return None;
        };
        let metadata = file.metadata().ok()?;
        Some(format!(
            "{}:{}.{:09}:{}.{:09}:{}:{}",
            metadata.size(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.dev(),
            metadata.ino()
        ))
    }

    /// Reads exactly `size` bytes at `offset`; `what` names them in errors.
    pub(super) fn read(
        &self,
        what: impl Fn() -> String,
        offset: u64,
        size: u64,
        limit: u64,
    ) -> Result<Vec<u8>, ElfError> {
        let truncated = || ElfError::Truncated {
            what: what(),
            offset,
            size,
        };
        // The file's length first: a size beyond it is a lie, not a reason to allocate.
        let end = offset.checked_add(size).ok_or_else(truncated)?;
        if end > self.len() {
            return Err(truncated());
        }
        if size > limit {
            return Err(ElfError::TooLarge {
                what: what(),
                size,
                limit,
            });
        }
        let mut buffer = vec![0; usize::try_from(size).map_err(|_| truncated())?];
        self.read_into(what, offset, &mut buffer)?;
        Ok(buffer)
    }

    /// Fills `out` from `offset` on.
    pub(super) fn read_into(
        &self,
        what: impl Fn() -> String,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ElfError> {
        let size = out.len() as u64;
        let truncated = || ElfError::Truncated {
            what: what(),
            offset,
            size,
        };
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).map_err(|_| truncated())?;
                let part = bytes.get(start..start.saturating_add(out.len()));
                out.copy_from_slice(part.ok_or_else(truncated)?);
                Ok(())
            }
            Self::File(file, _) => match file.read_exact_at(out, offset) {
                Ok(()) => Ok(()),
                // It became shorter since it was opened.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(truncated()),
                Err(source) => Err(ElfError::Io {
                    what: what(),
                    source,
                }),
            },
        }
    }

    /// Calls `f` with everything from begin to end, in pieces of at most 1 MiB.
    pub(super) fn for_each_chunk(&self, mut f: impl FnMut(&[u8])) -> Result<(), ElfError> {
        const CHUNK: u64 = 1 << 20;
        let mut offset = 0;
        while offset < self.len() {
            let size = CHUNK.min(self.len() - offset);
            f(&self.read(|| "file".to_owned(), offset, size, CHUNK)?);
            offset += size;
        }
        Ok(())
    }
}
