//! Where a file has the table of Go's functions, and where the code begins that the table's offsets count from.

use super::header::{HEADER, Header, Layout, u64_at};
use super::relocations::Relocations;
use crate::elf::{ElfError, ElfFile, Segment};

/// Bytes of a file that are searched for the table at most.
const MAX_SEARCH: u64 = 256 << 20;
/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;
/// Places that may be the table, or point to it, which are looked at.
const MAX_PLACES: usize = 64;
/// Word of the header that has the start of the code, from Go 1.18 to 1.25. It is 0 from 1.26 on, and where a relocation
/// gives it.
const TEXT: usize = 8 + 2 * 8;
/// Offset in `runtime.moduledata`, whose first word is the address of the table, of the address where Go's code begins:
/// behind that word, six slices, and three words for what finds a function.
const MODULE_TEXT: u64 = 8 * (1 + 6 * 3 + 3);

/// A table of Go's functions.
pub(super) struct Place {
    /// From its header on.
    pub(super) bytes: Vec<u8>,
    /// Its address, as stated in the file.
    address: u64,
}

impl Place {
    /// The section, else what a search finds.
    pub(super) fn find(elf: &ElfFile, limit: u64) -> Result<Option<Self>, ElfError> {
        let names = [".gopclntab", ".data.rel.ro.gopclntab"];
        if let Some(section) = names.iter().find_map(|name| elf.section(name)) {
            return Ok(Some(Self {
                bytes: elf.read(section, limit)?,
                address: section.address,
            }));
        }
        // A linker may have put it into another section.
        let is_go = |name: &str| name.starts_with(".note.go.") || name.starts_with(".go.");
        let is_candidate = elf.sections.is_empty() || elf.sections.iter().any(|s| is_go(&s.name));
        match is_candidate {
            true => Self::search(elf, limit),
            false => Ok(None),
        }
    }

    fn search(elf: &ElfFile, limit: u64) -> Result<Option<Self>, ElfError> {
        let found = each_word(elf, |_| true, |bytes| Layout::of(bytes).is_some())?;
        for (segment, into) in found {
            let Some(size) = segment.file_size.checked_sub(into) else {
                continue;
            };
            let offset = segment.offset.saturating_add(into);
            let what = format_args!("table of Go's functions");
            let n = size.min(HEADER as u64);
            let header = elf.read_range(what, offset, n, n)?;
            if Header::parse(&header, size).is_none() {
                continue;
            }
            // What else is in the segment follows it.
            let n = size.min(limit);
            return Ok(Some(Self {
                bytes: elf.read_range(what, offset, n, n)?,
                address: segment.address.saturating_add(into),
            }));
        }
        Ok(None)
    }

    /// Puts the addresses into the table that a dynamic linker would.
    pub(super) fn relocate(&mut self, elf: &ElfFile) -> Result<(), ElfError> {
        let relocations = Relocations::read(elf)?;
        for (at, value) in relocations.iter() {
            let into = at.checked_sub(self.address);
            let into = into.and_then(|into| usize::try_from(into).ok());
            let word = into.and_then(|into| self.bytes.get_mut(into..)?.first_chunk_mut::<8>());
            if let Some(word) = word {
                *word = value.to_le_bytes();
            }
        }
        Ok(())
    }

    /// Where Go's code begins: what the header says, else what points to the table says, else `.text`.
    pub(super) fn text(&self, elf: &ElfFile) -> Result<Option<u64>, ElfError> {
        if let Some(text) = u64_at(&self.bytes, TEXT).filter(|text| *text > 0) {
            return Ok(Some(text));
        }
        if let Some(text) = self.text_of_module(elf)? {
            return Ok(Some(text));
        }
        Ok(elf.section(".text").map(|section| section.address))
    }

    fn text_of_module(&self, elf: &ElfFile) -> Result<Option<u64>, ElfError> {
        let relocations = Relocations::read(elf)?;
        let is_code = |address: &u64| {
            let mut code = elf.segments.iter().filter(|s| s.is_code());
            code.any(|s| (s.address..s.address.saturating_add(s.memory_size)).contains(address))
        };
        // As a static linker leaves it, or as a relocation gives it.
        let modules = relocations.iter().filter(|(_, to)| *to == self.address);
        let modules: Vec<u64> = modules.map(|(at, _)| at).take(MAX_PLACES).collect();
        for module in modules {
            let at = module.saturating_add(MODULE_TEXT);
            let text = relocations.iter().find(|(word, _)| *word == at);
            if let Some(text) = text.map(|(_, text)| text).filter(is_code) {
                return Ok(Some(text));
            }
        }
        let own = self.address.to_le_bytes();
        let words = each_word(elf, Segment::is_writable, |bytes| bytes.starts_with(&own))?;
        for (segment, into) in words {
            let offset = segment
                .offset
                .saturating_add(into)
                .saturating_add(MODULE_TEXT);
            let what = format_args!("runtime.moduledata");
            let Ok(word) = elf.read_range(what, offset, 8, 8) else {
                continue;
            };
            if let Some(text) = u64_at(&word, 0).filter(is_code) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// Where in the segments of a file aligned words of 8 bytes satisfy a condition, as far as [`MAX_PLACES`] and [`MAX_SEARCH`] allow.
fn each_word(
    elf: &ElfFile,
    is_wanted: impl Fn(&Segment) -> bool,
    is_found: impl Fn(&[u8]) -> bool,
) -> Result<Vec<(&Segment, u64)>, ElfError> {
    let (mut found, mut left) = (Vec::new(), MAX_SEARCH);
    for segment in elf.segments.iter().filter(|s| s.is_load() && is_wanted(s)) {
        // Offsets of an aligned address are not aligned where the segment is not.
        let mut into = segment.address.wrapping_neg() % 8;
        while into < segment.file_size && left > 0 {
            let size = CHUNK.min(segment.file_size - into).min(left);
            let offset = segment.offset.saturating_add(into);
            let what = format_args!("segments of a Go program");
            let bytes = elf.read_range(what, offset, size, size)?;
            for (i, word) in (0_u64..).zip(bytes.chunks_exact(8)) {
                if is_found(word) {
                    found.push((segment, into + 8 * i));
                    if found.len() == MAX_PLACES {
                        return Ok(found);
                    }
                }
            }
            into += size;
            left -= size;
        }
    }
    Ok(found)
}
