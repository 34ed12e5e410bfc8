//! A list of sections to an ELF image: a change of one byte then changes the bytes of a
//! section, and seldom the headers around it.
//!
//! A section is: its name, as a position in [`NAMES`] (`u8`); [`COMPRESSED`] and [`EMPTY`] (`u8`);
//! its address (`u32`); its size (`u16`); its bytes, unless [`EMPTY`]. All little-endian.

use crate::bytes::Bytes;

/// The sections that wcprof reads.
const NAMES: [&str; 36] = [
    ".text",
    ".eh_frame",
    ".eh_frame_hdr",
    ".symtab",
    ".strtab",
    ".dynsym",
    ".dynstr",
    ".debug_info",
    ".debug_abbrev",
    ".debug_str",
    ".debug_line",
    ".debug_line_str",
    ".debug_aranges",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_frame",
    ".note.gnu.build-id",
    ".gnu_debuglink",
    ".gnu_debugaltlink",
    ".gnu_debugdata",
    ".plt",
    ".plt.sec",
    ".rela.plt",
    ".got",
    ".zdebug_info",
    ".zdebug_line",
    ".debug_info.dwo",
    ".debug_abbrev.dwo",
    ".debug_str.dwo",
    ".debug_str_offsets.dwo",
    ".debug_rnglists.dwo",
    ".debug_types.dwo",
    ".debug_cu_index",
    ".zdebug_info.dwo",
];
/// `SHF_COMPRESSED` is set.
pub(crate) const COMPRESSED: u8 = 1;
/// The section has no bytes in the file, only a size.
const EMPTY: u8 = 2;
const MAX_SECTIONS: usize = 40;
/// Sizes of the headers of the file, of a segment and of a section.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;

/// A section of an image.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) flags: u8,
    pub(crate) address: u32,
    pub(crate) size: u16,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// One that is not loaded.
    pub(crate) fn plain(name: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            name,
            flags: 0,
            address: 0,
            size: 0,
            bytes,
        }
    }

    fn is_code(&self) -> bool {
        matches!(self.name, ".text" | ".plt" | ".plt.sec")
    }

    fn is_loaded(&self) -> bool {
        self.address > 0
    }
}

/// The sections of an input.
pub(crate) fn parts<'a>(input: &mut Bytes<'a>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    while !input.0.is_empty() && parts.len() < MAX_SECTIONS {
        let name = NAMES[usize::from(input.u8()) % NAMES.len()];
        let flags = input.u8();
        let (address, size) = (input.u32(), input.u16());
        let bytes = match flags & EMPTY {
            0 => input.take(size.into()),
            _ => &[],
        };
        parts.push(Part {
            name,
            flags,
            address,
            size,
            bytes,
        });
    }
    parts
}

/// An ELF image with these sections, each loaded one in a segment of its own.
pub(crate) fn build(parts: &[Part<'_>]) -> Vec<u8> {
    let n_segments = 2 * parts.len();
    let mut out = vec![0; HEADER + n_segments * SEGMENT];
    let mut headers = vec![0; SECTION];
    let mut names = vec![0];
    let mut segments = Vec::new();
    for part in parts {
        let name_at = names.len() as u32;
        names.extend(part.name.as_bytes());
        names.push(0);
        let offset = out.len() as u64;
        out.extend(part.bytes);
        let is_empty = part.flags & EMPTY != 0;
        let size = match is_empty {
            true => u64::from(part.size),
            false => part.bytes.len() as u64,
        };
        let link = |name| parts.iter().position(|p| p.name == name).unwrap_or(0) as u32 + 1;
        let (kind, link, entry_size): (u32, u32, u64) = match part.name {
            _ if is_empty => (8, 0, 0),
            ".symtab" => (2, link(".strtab"), 24),
            ".dynsym" => (11, link(".dynstr"), 24),
            ".rela.plt" => (4, link(".dynsym"), 24),
            ".note.gnu.build-id" => (7, 0, 0),
            _ => (1, 0, 0),
        };
        let code = if part.is_code() { 4 } else { 0 };
        let loaded = if part.is_loaded() { 2 } else { 0 };
        let compressed = u64::from(part.flags & COMPRESSED) << 11;
        put(&mut headers, &[name_at.into(), kind.into()], 4);
        put(&mut headers, &[code | loaded | compressed], 8);
        put(&mut headers, &[part.address.into(), offset, size], 8);
        put(&mut headers, &[link.into(), 0], 4);
        put(&mut headers, &[1, entry_size], 8);
        let mut segment = |kind: u64, flags: u64| {
            put(&mut segments, &[kind, flags], 4);
            let address = part.address.into();
            put(&mut segments, &[offset, address, address, size, size, 1], 8);
        };
        if part.is_loaded() {
            segment(1, if part.is_code() { 5 } else { 4 });
        }
        match part.name {
            ".eh_frame_hdr" => segment(0x6474_e550, 4),
            ".note.gnu.build-id" => segment(4, 4),
            _ => {}
        }
    }
    let n_segments = segments.len() / SEGMENT;
    out[HEADER..HEADER + segments.len()].copy_from_slice(&segments);
    let name_at = names.len() as u64;
    names.extend(b".shstrtab\0");
    let offset = out.len() as u64;
    out.extend(&names);
    put(&mut headers, &[name_at, 3], 4);
    put(&mut headers, &[0, 0, offset, names.len() as u64], 8);
    put(&mut headers, &[0, 0], 4);
    put(&mut headers, &[1, 0], 8);
    let section_headers = out.len() as u64;
    out.extend(&headers);
    let n_sections = parts.len() as u64 + 2;
    let header = file_header(n_segments as u64, n_sections, section_headers);
    out[..HEADER].copy_from_slice(&header);
    out
}

/// The header of the file, whose last section holds the names of sections.
fn file_header(n_segments: u64, n_sections: u64, section_headers: u64) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_DYN, EM_X86_64.
    put(&mut header, &[3, 62], 2);
    put(&mut header, &[1], 4);
    put(&mut header, &[0, HEADER as u64, section_headers], 8);
    put(&mut header, &[0], 4);
    let (segments, sections) = ([SEGMENT as u64, n_segments], [SECTION as u64, n_sections]);
    put(&mut header, &[HEADER as u64], 2);
    put(&mut header, &segments, 2);
    put(&mut header, &sections, 2);
    put(&mut header, &[n_sections - 1], 2);
    header
}

fn put(out: &mut Vec<u8>, values: &[u64], width: usize) {
    for value in values {
        out.extend(&value.to_le_bytes()[..width]);
    }
}

#[cfg(test)]
mod tests {
    use dwarf_stream::elf::ElfFile;

    use super::*;

    /// Check that what is built is read with the sections that were asked for.
    #[test]
    fn sections() {
        let mut input = vec![0, EMPTY, 0, 0x10, 0, 0, 0, 2];
        input.extend([8, 0, 0, 0, 0, 0, 3, 0, 1, 2, 3]);
        input.extend([7, COMPRESSED, 0, 0, 0, 0, 1, 0, 9]);
        let image = build(&parts(&mut Bytes(&input)));
        let elf = ElfFile::from_bytes(image).unwrap();
        let names: Vec<&str> = elf.sections.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            names,
            ["", ".text", ".debug_abbrev", ".debug_info", ".shstrtab"]
        );
        let text = &elf.sections[1];
        assert!(text.is_executable() && !text.has_data());
        assert_eq!((text.address, text.size), (0x1000, 0x200));
        assert_eq!(elf.segments.len(), 1);
        assert_eq!(elf.read(&elf.sections[2], 10).unwrap(), [1, 2, 3]);
    }
}
