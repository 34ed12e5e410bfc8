//! A DWARF section to any part of it, in bounded memory.
//!
//! A section that is stored as it is stays in its file. A compressed one is expanded once: into
//! memory while it is small, else into an unnamed file, which goes away with its descriptor.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::elf::{ElfError, ElfFile, Section};
use crate::error::DwarfError;

/// Bytes expanded at a time on the way to a file.
const STEP: usize = 1 << 20;
/// First size of a part whose end is not known.
const FIRST_PART: u64 = 4096;
/// Follows a part that is cut off. It begins an entry of any list, so that no list seems to end there.
const CUT: u8 = 1;
/// Largest section that is put into a file, bytes, expanded.
const MAX_SPILL: u64 = 8 << 30;

/// Makes an empty file without a name, for this many bytes.
pub(crate) type NewFile = dyn Fn(u64) -> io::Result<File> + Send + Sync;

/// An empty file that goes away with its descriptor.
pub(crate) fn temporary_file() -> io::Result<File> {
    // `/tmp` comes last, since it is often in memory.
    tempfile::tempfile_in("/var/tmp").or_else(|_| tempfile::tempfile())
}

/// Random access to a section; an absent one is empty.
#[derive(Debug)]
pub(crate) enum Table<'a> {
    Absent,
    Stored(&'a ElfFile, &'a Section),
    Memory(Vec<u8>),
    Spilled(File, u64),
}

impl<'a> Table<'a> {
    /// Makes a section accessible. It is held in memory if it fits into `room`, from which it is
    /// then taken, else in a file that `new_file` makes.
    pub(crate) fn open(
        elf: &'a ElfFile,
        section: Option<&'a Section>,
        room: &mut u64,
        new_file: &NewFile,
    ) -> Result<Self, DwarfError> {
        let Some(section) = section else {
            return Ok(Self::Absent);
        };
        if elf.is_plain(section)? {
            return Ok(Self::Stored(elf, section));
        }
        let size = elf.expanded_size(section)?;
        if let Some(left) = room.checked_sub(size) {
            let bytes = elf.read(section, size)?;
            *room = left;
            return Ok(Self::Memory(bytes));
        }
        if size > MAX_SPILL {
            return Err(DwarfError::Elf(ElfError::TooLarge {
                what: format!("section {}, expanded,", section.name),
                size,
                limit: MAX_SPILL,
            }));
        }
        let spill = |source| DwarfError::Spill {
            section: section.name.clone(),
            size,
            source,
        };
        let mut file = new_file(size).map_err(spill)?;
        let mut stream = elf.stream(section)?;
        let mut buffer = vec![0; STEP];
        loop {
            let n = stream.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            file.write_all(buffer.get(..n).unwrap_or_default())
                .map_err(spill)?;
        }
        Ok(Self::Spilled(file, size))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Stored(_, section) => section.size,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Spilled(_, size) => *size,
        }
    }

    /// Bytes from `offset` on, at most `size` of them, fewer only at the section's end.
    pub(crate) fn part(&self, offset: u64, size: u64) -> Result<Cow<'_, [u8]>, DwarfError> {
        let size = size.min(self.len().saturating_sub(offset));
        match self {
            Self::Absent => Ok(Cow::Borrowed(&[])),
            Self::Stored(elf, section) => Ok(Cow::Owned(elf.read_part(section, offset, size)?)),
            Self::Memory(bytes) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(begin..).unwrap_or_default();
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                Ok(Cow::Borrowed(rest.get(..size).unwrap_or(rest)))
            }
            Self::Spilled(file, _) => {
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
                file.read_exact_at(&mut bytes, offset).map_err(|source| {
                    DwarfError::Elf(ElfError::Io {
                        what: "an expanded section".to_owned(),
                        source,
                    })
                })?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Reads something whose end only `parse` knows: with more and more bytes, at most `limit`, until it no
    /// longer meets their end.
    pub(crate) fn parse<T>(
        &self,
        offset: u64,
        limit: u64,
        parse: impl Fn(&[u8]) -> Result<T, DwarfError>,
    ) -> Result<T, DwarfError> {
        let mut size = match self {
            // What is in memory costs nothing to look at.
            Self::Memory(_) => limit,
            _ => FIRST_PART.min(limit),
        };
        loop {
            let mut part = self.part(offset, size)?;
            let is_cut = size < limit && size < self.len().saturating_sub(offset);
            if is_cut {
                part.to_mut().push(CUT);
            }
            match parse(&part) {
                Err(DwarfError::Gimli(gimli::Error::UnexpectedEof(_))) if is_cut => {
                    size = limit.min(size * 8);
                }
                result => return result,
            }
        }
    }

    /// The little-endian number of 4 or 8 bytes at `offset`.
    pub(crate) fn word(&self, offset: u64, size: u8) -> Result<u64, DwarfError> {
        let part = self.part(offset, u64::from(size))?;
        let eof = || DwarfError::Gimli(gimli::Error::OffsetOutOfBounds(offset));
        Ok(match size {
            4 => u64::from(u32::from_le_bytes(*part.first_chunk().ok_or_else(eof)?)),
            _ => u64::from_le_bytes(*part.first_chunk().ok_or_else(eof)?),
        })
    }
}
