//! ELF headers to lists of sections and segments.

use object::LittleEndian as LE;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_DYN, ET_EXEC, ET_REL, FileHeader64, PF_W, PF_X, PT_LOAD,
    ProgramHeader64, SHF_COMPRESSED, SHF_EXECINSTR, SHN_XINDEX, SHT_NOBITS, SectionHeader64,
};

use super::bytes::Source;
use super::error::ElfError;
use super::table::{c_string, entries};

/// Most section headers that are read; linked files have tens.
const MAX_SECTIONS: u64 = 65_536;
/// Largest section name table, bytes.
const MAX_SECTION_NAMES: u64 = 16 << 20;
/// Bytes kept of a section's name.
const MAX_SECTION_NAME: usize = 256;
const SECTION_HEADER: u64 = size_of::<SectionHeader64<LE>>() as u64;
const PROGRAM_HEADER: u64 = size_of::<ProgramHeader64<LE>>() as u64;

/// What kind of file is expected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An executable or shared object.
    Linked,
    /// The same, whose section headers may be damaged: it then has none. Enough for what a process has
    /// loaded.
    Loaded,
    /// DWARF without code, which may be of the type of object files: split DWARF, or what dwz makes for
    /// several debug files.
    DwarfOnly,
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
    /// Address when loaded, as stated in the file.
    pub address: u64,
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
        self.kind != SHT_NOBITS.0 && self.size > 0
    }

    /// Whether it holds instructions.
    pub fn is_executable(&self) -> bool {
        self.flags & SHF_EXECINSTR.0 != 0
    }

    /// First address after it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.flags & SHF_COMPRESSED.0 != 0
    }
}

/// A program header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// Address when loaded, as stated in the file.
    pub address: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub memory_size: u64,
    /// `p_align`.
    pub align: u64,
}

impl Segment {
    /// Whether it is a part of the file that a process has in memory.
    pub fn is_load(&self) -> bool {
        self.kind == PT_LOAD.0
    }

    /// Whether that part holds instructions.
    pub fn is_code(&self) -> bool {
        self.is_load() && self.flags & PF_X.0 != 0
    }

    /// Whether a process may write to it, at least while it is loaded.
    pub fn is_writable(&self) -> bool {
        self.is_load() && self.flags & PF_W.0 != 0
    }
}

/// What the headers of a file say.
pub(super) struct ElfHeaders {
    /// `e_machine`.
    pub(super) machine: u16,
    /// `e_entry`.
    pub(super) entry: u64,
    pub(super) sections: Vec<Section>,
    pub(super) segments: Vec<Segment>,
}

/// Reads and checks the headers.
pub(super) fn parse(source: &Source, kind: Kind) -> Result<ElfHeaders, ElfError> {
    let size = size_of::<FileHeader64<LE>>() as u64;
    let bytes = match source.read(format_args!("ELF header"), 0, size, size) {
        Err(ElfError::Truncated { .. }) => return Err(ElfError::NotElf),
        other => other?,
    };
    let header: &FileHeader64<LE> = entries(&bytes).first().ok_or(ElfError::NotElf)?;
    if header.e_ident.magic != ELFMAG {
        return Err(ElfError::NotElf);
    }
    if header.e_ident.class != ELFCLASS64 || header.e_ident.data != ELFDATA2LSB {
        return Err(ElfError::Unsupported("not 64-bit little-endian"));
    }
    let file_type = header.e_type.get(LE);
    let is_expected =
        [ET_EXEC, ET_DYN].contains(&file_type) || kind == Kind::DwarfOnly && file_type == ET_REL;
    if !is_expected {
        return Err(ElfError::Unsupported(
            "neither an executable nor a shared object",
        ));
    }
    let sections = match (sections(source, header), kind) {
        (Err(_), Kind::Loaded) => Vec::new(),
        (sections, _) => sections?,
    };
    Ok(ElfHeaders {
        machine: header.e_machine.get(LE).0,
        entry: header.e_entry.get(LE),
        sections,
        segments: segments(source, header)?,
    })
}

fn sections(source: &Source, header: &FileHeader64<LE>) -> Result<Vec<Section>, ElfError> {
    const WHAT: &str = "section headers";
    let what = format_args!("{WHAT}");
    let at = header.e_shoff.get(LE);
    if at == 0 {
        return Ok(Vec::new());
    }
    if u64::from(header.e_shentsize.get(LE)) != SECTION_HEADER {
        return Err(ElfError::Malformed(WHAT.to_owned()));
    }
    let mut count = u64::from(header.e_shnum.get(LE));
    let mut names = u32::from(header.e_shstrndx.get(LE).0);
    if count == 0 || names == u32::from(SHN_XINDEX.0) {
        // More than fit the header's fields: the first section header holds them.
        let first = source.read(what, at, SECTION_HEADER, SECTION_HEADER)?;
        if let Some(first) = entries::<SectionHeader64<LE>>(&first).first() {
            if count == 0 {
                count = first.sh_size.get(LE);
            }
            if names == u32::from(SHN_XINDEX.0) {
                names = first.sh_link.get(LE);
            }
        }
    }
    let (size, limit) = (
        count.saturating_mul(SECTION_HEADER),
        MAX_SECTIONS * SECTION_HEADER,
    );
    if size > limit {
        let what = WHAT.to_owned();
        return Err(ElfError::TooLarge { what, size, limit });
    }
    let table = source.read(what, at, size, limit)?;
    let table: &[SectionHeader64<LE>] = entries(&table);
    let strings = match table.get(names as usize).map(|s| section(s, &[])) {
        Some(s) if s.has_data() => source.read(
            format_args!("section names"),
            s.offset,
            s.size,
            MAX_SECTION_NAMES,
        )?,
        _ => Vec::new(),
    };
    Ok(table.iter().map(|s| section(s, &strings)).collect())
}

fn section(header: &SectionHeader64<LE>, strings: &[u8]) -> Section {
    let name = c_string(strings, header.sh_name.get(LE));
    let name = name.get(..MAX_SECTION_NAME).unwrap_or(name);
    Section {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: header.sh_type.get(LE).0,
        flags: header.sh_flags.get(LE).0,
        address: header.sh_addr.get(LE),
        offset: header.sh_offset.get(LE),
        size: header.sh_size.get(LE),
        link: header.sh_link.get(LE),
        entry_size: header.sh_entsize.get(LE),
    }
}

fn segments(source: &Source, header: &FileHeader64<LE>) -> Result<Vec<Segment>, ElfError> {
    const WHAT: &str = "program headers";
    let (at, count) = (header.e_phoff.get(LE), header.e_phnum.get(LE));
    if at == 0 || count == 0 {
        return Ok(Vec::new());
    }
    if u64::from(header.e_phentsize.get(LE)) != PROGRAM_HEADER {
        return Err(ElfError::Malformed(WHAT.to_owned()));
    }
    let size = u64::from(count) * PROGRAM_HEADER;
    let table = source.read(format_args!("{WHAT}"), at, size, size)?;
    let segment = |header: &ProgramHeader64<LE>| Segment {
        kind: header.p_type.get(LE).0,
        flags: header.p_flags.get(LE).0,
        offset: header.p_offset.get(LE),
        address: header.p_vaddr.get(LE),
        file_size: header.p_filesz.get(LE),
        memory_size: header.p_memsz.get(LE),
        align: header.p_align.get(LE),
    };
    Ok(entries(&table).iter().map(segment).collect())
}
