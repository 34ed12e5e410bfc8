//! Bounded reads from a file or from memory.

use std::borrow::Borrow;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::error::ElfError;

/// An open file, or what has one.
pub trait AsFile: Borrow<File> + fmt::Debug + Send + Sync + 'static {}

impl<F: Borrow<File> + fmt::Debug + Send + Sync + 'static> AsFile for F {}

/// Where the bytes of an ELF file come from.
#[derive(Debug)]
pub enum Source {
    /// A regular file and its length when it was opened.
    File(Box<dyn AsFile>, u64),
    /// A copy in memory.
    Bytes(Vec<u8>),
}

impl Source {
    /// A regular file.
    pub fn from_file(file: impl AsFile) -> Result<Self, ElfError> {
        let metadata = file.borrow().metadata().map_err(|source| ElfError::Io {
            what: "file status".to_owned(),
            source,
        })?;
        match metadata.is_file() {
            true => Ok(Self::File(Box::new(file), metadata.len())),
            false => Err(ElfError::NotRegular),
        }
    }

    pub(super) fn file(&self) -> Option<&File> {
        match self {
            Self::File(file, _) => Some((**file).borrow()),
            Self::Bytes(_) => None,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Reads exactly `size` bytes at `offset`; `what` names them in errors.
    pub(super) fn read(
        &self,
        what: fmt::Arguments<'_>,
        offset: u64,
        size: u64,
        limit: u64,
    ) -> Result<Vec<u8>, ElfError> {
        // The file's length first: a size beyond it is a lie, not a reason to allocate.
        if offset.checked_add(size).is_none_or(|end| end > self.len()) {
            return Err(truncated(what, offset, size));
        }
        if size > limit {
            return Err(ElfError::TooLarge {
                what: what.to_string(),
                size,
                limit,
            });
        }
        let len = usize::try_from(size).map_err(|_| truncated(what, offset, size))?;
        let mut buffer = vec![0; len];
        self.read_into(what, offset, &mut buffer)?;
        Ok(buffer)
    }

    /// Fills `out` from `offset` on; `what` names the bytes in errors.
    pub fn read_into(
        &self,
        what: fmt::Arguments<'_>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ElfError> {
        let size = out.len() as u64;
        let truncated = || truncated(what, offset, size);
        match self {
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).map_err(|_| truncated())?;
                let part = bytes.get(start..start.saturating_add(out.len()));
                out.copy_from_slice(part.ok_or_else(truncated)?);
                Ok(())
            }
            Self::File(file, _) => (**file)
                .borrow()
                .read_exact_at(out, offset)
                .map_err(|source| {
                    match source.kind() {
                        // It became shorter since it was opened.
                        io::ErrorKind::UnexpectedEof => truncated(),
                        _ => ElfError::Io {
                            what: what.to_string(),
                            source,
                        },
                    }
                }),
        }
    }
}

fn truncated(what: fmt::Arguments<'_>, offset: u64, size: u64) -> ElfError {
    ElfError::Truncated {
        what: what.to_string(),
        offset,
        size,
    }
}
