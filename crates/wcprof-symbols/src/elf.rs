//! An ELF file as a list of sections, each read only when asked for.
//!
//! Headers are read once and checked; a section's bytes are read with `pread` into memory that a
//! limit caps, so that a file that shrinks, lies about sizes or expands without end costs an error
//! and nothing else. Only 64-bit little-endian executables and shared objects.

mod bytes;
mod mini;
mod notes;
mod parse;
mod stream;

use std::fs::File;

use thiserror::Error;
use wcprof_types::Svma;

pub(crate) use notes::AltLink;
pub use notes::DebugLink;

use bytes::Source;
pub(crate) use parse::{c_string, u16_at, u32_at, u64_at};
use stream::Format;
pub(crate) use stream::SectionStream;

/// Largest section that is read by name without a limit of the caller's, bytes.
pub const MAX_SECTION: u64 = 512 << 20;

/// Bytes that an expanded section grows by at first.
const STEP: usize = 1 << 20;
/// `SHT_NOBITS`.
const SHT_NOBITS: u32 = 8;
/// `SHF_EXECINSTR`.
const SHF_EXECINSTR: u64 = 4;
/// `SHF_COMPRESSED`.
const SHF_COMPRESSED: u64 = 0x800;

/// Why an ELF file could not be read.
#[derive(Debug, Error)]
pub enum ElfError {
    /// It is not a regular file.
    #[error("not a regular file")]
    NotRegular,
    /// It does not begin like an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file of a kind that is not supported.
    #[error("unsupported ELF file: {0}")]
    Unsupported(&'static str),
    /// Something lies beyond the end of the file.
    #[error("{what} ends beyond the file: {size:#x} bytes at offset {offset:#x}")]
    Truncated {
        /// What was read.
        what: String,
        /// Where it begins.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// Something is larger than wcprof reads.
    #[error("{what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// What was read.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A header contradicts itself.
    #[error("malformed {0}")]
    Malformed(String),
    /// A compressed section could not be expanded.
    #[error("failed to expand {section}: {reason}")]
    Compression {
        /// The section.
        section: String,
        /// The decoder's reason.
        reason: String,
    },
    /// Reading failed.
    #[error("failed to read {what}: {source}")]
    Io {
        /// What was read.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A section header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Name, at most 256 bytes of it.
    pub name: String,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// Address when loaded.
    pub address: Svma,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Size in bytes, as stored when it is compressed.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_entsize`.
    pub entry_size: u64,
}

impl Section {
    /// Whether the file holds its bytes.
    pub fn has_data(&self) -> bool {
        self.kind != SHT_NOBITS && self.size > 0
    }

    /// Whether it holds instructions.
    pub fn is_executable(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }

    /// First address after it.
    pub fn end(&self) -> Svma {
        Svma(self.address.0.saturating_add(self.size))
    }
}

/// A program header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Address when loaded.
    pub address: Svma,
    /// Bytes in the file.
    pub file_size: u64,
    /// `p_align`.
    pub align: u64,
}

/// An open ELF file and its headers.
#[derive(Debug)]
pub struct ElfFile {
    source: Source,
    /// `e_machine`.
    pub machine: u16,
    /// Section headers in file order; the first is the empty one.
    pub sections: Vec<Section>,
    /// Program headers in file order.
    pub segments: Vec<Segment>,
}

impl ElfFile {
    /// Reads the headers of a regular file.
    pub fn from_file(file: File) -> Result<Self, ElfError> {
        parse::parse(Source::from_file(file)?, false)
    }

    /// Reads the headers of a file that holds DWARF alone: one that `.gnu_debugaltlink` names, or
    /// split DWARF.
    pub(crate) fn from_shared_dwarf(file: File) -> Result<Self, ElfError> {
        parse::parse(Source::from_file(file)?, true)
    }

    /// Reads the headers of an image in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ElfError> {
        parse::parse(Source::from_bytes(bytes), false)
    }

    /// The first section of that name that has bytes in this file.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections
            .iter()
            .find(|s| s.name == name && s.has_data())
    }

    /// A DWARF section by its name without the leading dot: `.debug_info`, or `.zdebug_info` as
    /// compressed by old toolchains.
    pub fn debug_section(&self, name: &str) -> Option<&Section> {
        let is = |s: &&Section, prefix: &str| s.name.strip_prefix(prefix) == Some(name);
        let mut with_data = self.sections.iter().filter(|s| s.has_data());
        with_data
            .clone()
            .find(|s| is(s, "."))
            .or_else(|| with_data.find(|s| is(s, ".z")))
    }

    /// Whether it has DWARF that names functions.
    pub fn has_dwarf(&self) -> bool {
        self.debug_section("debug_info").is_some()
    }

    /// Size of a section's bytes when expanded. Reads the compression header only.
    pub fn expanded_size(&self, section: &Section) -> Result<u64, ElfError> {
        Ok(self.compression(section)?.expanded)
    }

    /// Reads a section, expanded if it is compressed, which must be at most `limit` bytes.
    pub fn read(&self, section: &Section, limit: u64) -> Result<Vec<u8>, ElfError> {
        let compression = self.compression(section)?;
        if compression.expanded > limit {
            return Err(ElfError::TooLarge {
                what: format!("section {}, expanded,", section.name),
                size: compression.expanded,
                limit,
            });
        }
        if compression.format == Format::Plain {
            let what = || format!("section {}", section.name);
            return self.source.read(what, section.offset, section.size, limit);
        }
        let mut stream = self.stream(section)?;
        let mut expanded = Vec::new();
        // Grown as bytes come, so that a header that lies costs nothing.
        while stream.position() < stream.size() {
            let begin = expanded.len();
            let left = usize::try_from(stream.size() - stream.position()).unwrap_or(STEP);
            expanded.resize(begin + left.min(STEP.max(begin)), 0);
            stream.read(expanded.get_mut(begin..).unwrap_or_default())?;
        }
        Ok(expanded)
    }

    /// Goes through a section from its begin, expanding it if it is compressed.
    pub(crate) fn stream<'a>(
        &'a self,
        section: &'a Section,
    ) -> Result<SectionStream<'a>, ElfError> {
        let Compression {
            format,
            header,
            expanded,
        } = self.compression(section)?;
        SectionStream::new(&self.source, section, format, header, expanded)
    }

    /// Whether a section is stored as it is, so that any part of it can be read alone.
    pub(crate) fn is_plain(&self, section: &Section) -> Result<bool, ElfError> {
        Ok(self.compression(section)?.format == Format::Plain)
    }

    /// Reads at most `size` bytes at `offset` of a section that is stored as it is, fewer at its
    /// end.
    pub(crate) fn read_part(
        &self,
        section: &Section,
        offset: u64,
        size: u64,
    ) -> Result<Vec<u8>, ElfError> {
        let size = size.min(section.size.saturating_sub(offset));
        let what = || format!("section {}", section.name);
        self.source
            .read(what, section.offset.saturating_add(offset), size, size)
    }

    /// What tells this file from all others on this machine, and from itself after a change.
    /// `None` for an image in memory.
    pub(crate) fn stamp(&self) -> Option<String> {
        self.source.stamp()
    }

    /// Calls `f` with the whole file, a chunk at a time, for its checksum.
    pub(crate) fn for_each_chunk(&self, f: impl FnMut(&[u8])) -> Result<(), ElfError> {
        self.source.for_each_chunk(f)
    }

    fn compression(&self, section: &Section) -> Result<Compression, ElfError> {
        let what = || format!("compression header of section {}", section.name);
        if section.flags & SHF_COMPRESSED != 0 {
            // Elf64_Chdr: ch_type, ch_reserved, ch_size, ch_addralign.
            let header = self.source.read(what, section.offset, 24, 24)?;
            let format = match u32_at(&header, 0) {
                Some(1) => Format::Zlib,
                Some(2) => Format::Zstd,
                other => {
                    return Err(ElfError::Compression {
                        section: section.name.clone(),
                        reason: format!("unknown format {}", other.unwrap_or(0)),
                    });
                }
            };
            return Ok(Compression {
                format,
                header: 24,
                expanded: u64_at(&header, 8).unwrap_or(0),
            });
        }
        if section.name.starts_with(".zdebug_") {
            // "ZLIB" and the size, big-endian.
            let header = self.source.read(what, section.offset, 12, 12)?;
            if let Some((b"ZLIB", size)) = header.split_first_chunk::<4>()
                && let Ok(size) = <[u8; 8]>::try_from(size)
            {
                return Ok(Compression {
                    format: Format::Zlib,
                    header: 12,
                    expanded: u64::from_be_bytes(size),
                });
            }
        }
        Ok(Compression {
            format: Format::Plain,
            header: 0,
            expanded: section.size,
        })
    }
}

/// How a section is stored.
struct Compression {
    format: Format,
    /// Bytes before the compressed data.
    header: u64,
    /// Bytes when expanded.
    expanded: u64,
}

#[cfg(test)]
mod tests;
