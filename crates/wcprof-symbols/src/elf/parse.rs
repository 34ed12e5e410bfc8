//! ELF headers from bytes (`Elf64_Ehdr`, `Elf64_Shdr`, `Elf64_Phdr` of the ELF-64 object file
//! format).

use wcprof_types::Svma;

use super::bytes::Source;
use super::{ElfError, ElfFile, Section, Segment};

const HEADER_SIZE: u64 = 64;
const SECTION_HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
/// Section headers read at most; linked files have tens.
const MAX_SECTIONS: u64 = 65_536;
/// Section name table read at most, bytes.
const MAX_SECTION_NAMES: u64 = 16 << 20;
/// Bytes kept of a section's name.
const MAX_SECTION_NAME: usize = 256;
const ET_REL: u16 = 1;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;

/// `u16` at a byte position.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_le_bytes(*field))
}

/// `u32` at a byte position.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// `u64` at a byte position.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

/// Reads and checks the headers of an executable or shared object, or of what `dwz` makes to be
/// shared by several debug files, which has no code and is of the type of object files.
pub(super) fn parse(source: Source, is_shared_dwarf: bool) -> Result<ElfFile, ElfError> {
    let what = || "ELF header".to_owned();
    let header = match source.read(what, 0, HEADER_SIZE, HEADER_SIZE) {
        Err(ElfError::Truncated { .. }) => return Err(ElfError::NotElf),
        other => other?,
    };
    if !header.starts_with(b"\x7fELF") {
        return Err(ElfError::NotElf);
    }
    if header.get(4..6) != Some(&[2, 1]) {
        return Err(ElfError::Unsupported("not 64-bit little-endian"));
    }
    let fields = Header::parse(&header).ok_or_else(|| ElfError::Malformed(what()))?;
    let is_known =
        matches!(fields.kind, ET_EXEC | ET_DYN) || (fields.kind == ET_REL && is_shared_dwarf);
    if !is_known {
        return Err(ElfError::Unsupported(
            "neither an executable nor a shared object",
        ));
    }
    Ok(ElfFile {
        machine: fields.machine,
        sections: sections(&source, &fields)?,
        segments: segments(&source, &fields)?,
        source,
    })
}

struct Header {
    kind: u16,
    machine: u16,
    program_headers: u64,
    section_headers: u64,
    program_header_size: u16,
    n_program_headers: u16,
    section_header_size: u16,
    n_section_headers: u16,
    section_names: u16,
}

impl Header {
    fn parse(b: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u16_at(b, 16)?,
            machine: u16_at(b, 18)?,
            program_headers: u64_at(b, 32)?,
            section_headers: u64_at(b, 40)?,
            program_header_size: u16_at(b, 54)?,
            n_program_headers: u16_at(b, 56)?,
            section_header_size: u16_at(b, 58)?,
            n_section_headers: u16_at(b, 60)?,
            section_names: u16_at(b, 62)?,
        })
    }
}

fn sections(source: &Source, header: &Header) -> Result<Vec<Section>, ElfError> {
    let what = || "section headers".to_owned();
    if header.section_headers == 0 {
        return Ok(Vec::new());
    }
    if usize::from(header.section_header_size) != SECTION_HEADER_SIZE {
        return Err(ElfError::Malformed(what()));
    }
    let size = SECTION_HEADER_SIZE as u64;
    let (mut count, mut names) = (
        u64::from(header.n_section_headers),
        u32::from(header.section_names),
    );
    if count == 0 || names == 0xffff {
        // More than fit the header's fields: the first section header holds them.
        let first = source.read(what, header.section_headers, size, size)?;
        if count == 0 {
            count = u64_at(&first, 32).unwrap_or(0);
        }
        if names == 0xffff {
            names = u32_at(&first, 40).unwrap_or(0);
        }
    }
    if count > MAX_SECTIONS {
        return Err(ElfError::TooLarge {
            what: what(),
            size: count.saturating_mul(size),
            limit: MAX_SECTIONS * size,
        });
    }
    let table = source.read(
        what,
        header.section_headers,
        count * size,
        MAX_SECTIONS * size,
    )?;
    let raw: Vec<(u32, Section)> = table
        .chunks_exact(SECTION_HEADER_SIZE)
        .filter_map(section)
        .collect();
    let strings = match usize::try_from(names).ok().and_then(|i| raw.get(i)) {
        Some((_, s)) if s.has_data() => source.read(
            || "section names".to_owned(),
            s.offset,
            s.size,
            MAX_SECTION_NAMES,
        )?,
        _ => Vec::new(),
    };
    Ok(raw
        .into_iter()
        .map(|(name, section)| Section {
            name: section_name(&strings, name),
            ..section
        })
        .collect())
}

/// A section header and where its name is; the name itself is left empty.
fn section(b: &[u8]) -> Option<(u32, Section)> {
    Some((
        u32_at(b, 0)?,
        Section {
            name: String::new(),
            kind: u32_at(b, 4)?,
            flags: u64_at(b, 8)?,
            address: Svma(u64_at(b, 16)?),
            offset: u64_at(b, 24)?,
            size: u64_at(b, 32)?,
            link: u32_at(b, 40)?,
            entry_size: u64_at(b, 56)?,
        },
    ))
}

fn section_name(strings: &[u8], at: u32) -> String {
    let name = c_string(strings, at);
    let end = name.len().min(MAX_SECTION_NAME);
    String::from_utf8_lossy(name.get(..end).unwrap_or(name)).into_owned()
}

/// The zero-terminated string at `at` in a string table; empty when out of range.
pub(crate) fn c_string(strings: &[u8], at: u32) -> &[u8] {
    let rest = usize::try_from(at)
        .ok()
        .and_then(|at| strings.get(at..))
        .unwrap_or_default();
    rest.split(|b| *b == 0).next().unwrap_or_default()
}

fn segments(source: &Source, header: &Header) -> Result<Vec<Segment>, ElfError> {
    let what = || "program headers".to_owned();
    if header.program_headers == 0 || header.n_program_headers == 0 {
        return Ok(Vec::new());
    }
    if usize::from(header.program_header_size) != PROGRAM_HEADER_SIZE {
        return Err(ElfError::Malformed(what()));
    }
    let size = u64::from(header.n_program_headers) * PROGRAM_HEADER_SIZE as u64;
    let table = source.read(what, header.program_headers, size, size)?;
    let segment = |b: &[u8]| {
        Some(Segment {
            kind: u32_at(b, 0)?,
            offset: u64_at(b, 8)?,
            address: Svma(u64_at(b, 16)?),
            file_size: u64_at(b, 32)?,
            align: u64_at(b, 48)?,
        })
    };
    Ok(table
        .chunks_exact(PROGRAM_HEADER_SIZE)
        .filter_map(segment)
        .collect())
}
