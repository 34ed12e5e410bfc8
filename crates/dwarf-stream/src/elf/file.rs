//! An open ELF file: its headers, and its sections on demand.
//!
//! Headers are read once and checked. A section's bytes are read with `pread` into memory that a limit
//! caps: a file that shrinks, lies about sizes or expands without end costs an error and nothing else.
//! Only 64-bit little-endian files.

use std::fmt;
use std::fs::File;

use object::LittleEndian as LE;
use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};

use super::bytes::{AsFile, Source};
use super::error::ElfError;
use super::parse::{self, Kind, Section, Segment};
use super::stream::{Compression, Format, SectionStream};
use super::table::entries;
use crate::cancel::Cancel;

/// Bytes that an expanded section grows by at first.
const STEP: usize = 1 << 20;
/// Bytes read at a time where a whole file is.
const CHUNK: u64 = 1 << 20;
/// A section does not expand to more than so many times its size: zlib reaches 1032. zstd could do more, and
/// does not where there is anything but zeros.
const MAX_RATIO: u64 = 2048;
/// Bytes of `Elf64_Chdr`.
const COMPRESSION_HEADER: u64 = size_of::<CompressionHeader64<LE>>() as u64;

/// An open ELF file and its headers.
#[derive(Debug)]
pub struct ElfFile {
    source: Source,
    cancel: Cancel,
    /// `e_machine`.
    pub machine: u16,
    /// `e_entry`: where the program begins, as stated in the file; 0 without such a place.
    pub entry: u64,
    /// Section headers in file order; the first is the empty one.
    pub sections: Vec<Section>,
    /// Program headers in file order.
    pub segments: Vec<Segment>,
}

impl ElfFile {
    /// Reads the headers of an executable or shared object, which must be a regular file.
    pub fn from_file(file: impl AsFile) -> Result<Self, ElfError> {
        Self::parse(Source::from_file(file)?, Kind::Linked)
    }

    /// Reads the headers of an executable or shared object in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ElfError> {
        Self::parse(Source::Bytes(bytes), Kind::Linked)
    }

    /// Reads the headers of any kind of file.
    pub fn parse(source: Source, kind: Kind) -> Result<Self, ElfError> {
        let headers = parse::parse(&source, kind)?;
        Ok(Self {
            source,
            cancel: Cancel::default(),
            machine: headers.machine,
            entry: headers.entry,
            sections: headers.sections,
            segments: headers.segments,
        })
    }

    /// Makes reads of its contents fail once `cancel` asks for it.
    #[must_use]
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        Self {
            cancel: cancel.clone(),
            ..self
        }
    }

    /// Fails once the end of reads was asked for.
    pub(crate) fn check(&self) -> Result<(), ElfError> {
        self.cancel.check()
    }

    /// Bytes of the whole file.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a file with headers is not empty"
    )]
    pub fn len(&self) -> u64 {
        self.source.len()
    }

    /// The file that it is read from; `None` for an image in memory.
    pub fn file(&self) -> Option<&File> {
        self.source.file()
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
        let find = |prefix: &str| {
            let mut with_data = self.sections.iter().filter(|s| s.has_data());
            with_data.find(|s| s.name.strip_prefix(prefix) == Some(name))
        };
        find(".").or_else(|| find(".z"))
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
            return self.read_part(section, 0, section.size);
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

    /// Goes through a section from its start, expanding it if it is compressed.
    pub fn stream<'a>(&'a self, section: &'a Section) -> Result<SectionStream<'a>, ElfError> {
        let compression = self.compression(section)?;
        SectionStream::new((&self.source, &self.cancel), section, compression)
    }

    /// Whether a section is stored as it is, so that any part of it can be read alone.
    pub fn is_plain(&self, section: &Section) -> Result<bool, ElfError> {
        Ok(self.compression(section)?.format == Format::Plain)
    }

    /// Reads at most `size` bytes at `offset` of a section that is stored as it is, fewer at its end.
    pub fn read_part(
        &self,
        section: &Section,
        offset: u64,
        size: u64,
    ) -> Result<Vec<u8>, ElfError> {
        let size = size.min(section.size.saturating_sub(offset));
        let at = section.offset.saturating_add(offset);
        self.read_range(format_args!("section {}", section.name), at, size, size)
    }

    /// Reads `size` bytes at `offset` of the file, if they are at most `limit`. `what` names them in
    /// errors.
    pub fn read_range(
        &self,
        what: fmt::Arguments<'_>,
        offset: u64,
        size: u64,
        limit: u64,
    ) -> Result<Vec<u8>, ElfError> {
        self.check()?;
        self.source.read(what, offset, size, limit)
    }

    /// Calls `f` with the whole file, in pieces of at most 1 MiB.
    pub fn for_each_chunk(&self, mut f: impl FnMut(&[u8])) -> Result<(), ElfError> {
        let mut offset = 0;
        while offset < self.len() {
            let size = CHUNK.min(self.len() - offset);
            f(&self.read_range(format_args!("file"), offset, size, CHUNK)?);
            offset += size;
        }
        Ok(())
    }

    fn compression(&self, section: &Section) -> Result<Compression, ElfError> {
        let read = |size| {
            let what = format_args!("compression header of section {}", section.name);
            self.read_range(what, section.offset, size, size)
        };
        let stored = |format, header, expanded| {
            if format != Format::Plain && expanded / MAX_RATIO > section.size {
                return Err(ElfError::Compression {
                    section: section.name.clone(),
                    reason: format!("{} bytes cannot expand to {expanded}", section.size),
                });
            }
            Ok(Compression {
                format,
                header,
                expanded,
            })
        };
        if section.is_compressed() {
            let bytes = read(COMPRESSION_HEADER)?;
            let header = entries::<CompressionHeader64<LE>>(&bytes).first();
            let kind = header.map(|h| h.ch_type.get(LE));
            let format = match kind {
                Some(ELFCOMPRESS_ZLIB) => Format::Zlib,
                Some(ELFCOMPRESS_ZSTD) => Format::Zstd,
                other => {
                    return Err(ElfError::Compression {
                        section: section.name.clone(),
                        reason: format!("unknown format {}", other.map_or(0, |kind| kind.0)),
                    });
                }
            };
            let expanded = header.map_or(0, |h| h.ch_size.get(LE));
            return stored(format, COMPRESSION_HEADER, expanded);
        }
        if section.name.starts_with(".zdebug_") {
            // "ZLIB" and the size, big-endian.
            let header = read(12)?;
            if let Some((b"ZLIB", size)) = header.split_first_chunk::<4>()
                && let Ok(size) = <[u8; 8]>::try_from(size)
            {
                return stored(Format::Zlib, 12, u64::from_be_bytes(size));
            }
        }
        stored(Format::Plain, 0, section.size)
    }
}
