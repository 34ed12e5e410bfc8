//! Sections of DWARF to an ELF file, and the pieces that they are made of.

use std::io::Write;

use dwarf_stream::elf::ElfFile;
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Where the addresses that are looked up begin.
pub const TEXT: u64 = 0x1000;
/// `DW_AT_name`, `DW_AT_stmt_list`, `DW_AT_low_pc`, `DW_AT_high_pc`, `DW_AT_comp_dir`, `DW_AT_ranges`.
pub const NAME: u8 = 0x03;
pub const STMT_LIST: u8 = 0x10;
pub const LOW_PC: u8 = 0x11;
pub const HIGH_PC: u8 = 0x12;
pub const COMP_DIR: u8 = 0x1b;
pub const RANGES: u8 = 0x55;
/// `DW_FORM_addr`, `DW_FORM_data8`, `DW_FORM_string`, `DW_FORM_strp`, `DW_FORM_sec_offset`,
/// `DW_FORM_flag_present`.
pub const ADDR: u8 = 0x01;
pub const DATA8: u8 = 0x07;
pub const STRING: u8 = 0x08;
pub const STRP: u8 = 0x0e;
pub const SEC_OFFSET: u8 = 0x17;
pub const FLAG_PRESENT: u8 = 0x19;

/// The addresses from [`TEXT`] on, so many.
pub fn addresses(n: u64) -> Vec<u64> {
    (TEXT..TEXT + n).collect()
}

/// A table of abbreviations: a unit (1) with these attributes and children, and functions (2) with those,
/// without children.
pub fn abbreviations(unit: &[[u8; 2]], function: &[[u8; 2]]) -> Vec<u8> {
    let mut table = vec![1, 0x11, 1];
    table.extend(unit.as_flattened());
    table.extend([0, 0, 2, 0x2e, 0]);
    table.extend(function.as_flattened());
    table.extend([0, 0, 0]);
    table
}

/// A unit of DWARF 4 with these entries.
pub fn unit(entries: &[u8]) -> Vec<u8> {
    let mut unit = u32::try_from(entries.len() + 7)
        .unwrap()
        .to_le_bytes()
        .to_vec();
    unit.extend([4, 0, 0, 0, 0, 0, 8]);
    unit.extend(entries);
    unit
}

/// Little-endian numbers of 8 bytes.
pub fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A line program of a file `f` with so many sequences of rows at these addresses.
pub fn line_program(rows: &[u64], n_sequences: usize) -> Vec<u8> {
    let tables = b"\x01\x01\x01\xfb\x0e\x0d\0\x01\x01\x01\x01\0\0\0\x01\0\0\x01\0f\0\0\0\0\0";
    let mut program = vec![2, 0];
    program.extend(u32::try_from(tables.len()).unwrap().to_le_bytes());
    program.extend(tables);
    let mut sequence = Vec::new();
    for address in rows {
        // DW_LNE_set_address, DW_LNS_copy.
        sequence.extend([0, 9, 2]);
        sequence.extend(address.to_le_bytes());
        sequence.push(1);
    }
    // DW_LNE_end_sequence.
    sequence.extend([0, 1, 1]);
    program.extend(sequence.repeat(n_sequences));
    let mut section = u32::try_from(program.len()).unwrap().to_le_bytes().to_vec();
    section.extend(program);
    section
}

/// The bytes of a compressed section as old toolchains write it (`.zdebug_*`).
pub fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut section = b"ZLIB".to_vec();
    section.extend((bytes.len() as u64).to_be_bytes());
    let mut encoder = ZlibEncoder::new(section, Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An ELF file with these sections.
pub fn elf(sections: &[(&str, &[u8])]) -> ElfFile {
    let mut image = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_DYN, EM_X86_64, version 1; no entry point, no segments.
    image.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    image.resize(64, 0);
    let mut headers = vec![0; 64];
    let mut names = vec![0];
    for (name, bytes) in sections {
        headers.extend(section(names.len(), image.len(), bytes.len()));
        names.extend(name.as_bytes());
        names.push(0);
        image.extend(*bytes);
    }
    headers.extend(section(0, image.len(), names.len()));
    image.extend(names);
    let at = image.len() as u64;
    image.extend(headers);
    image[40..48].copy_from_slice(&at.to_le_bytes());
    let n_sections = u16::try_from(sections.len() + 2).unwrap();
    let sizes = [64, 56, 0, 64, n_sections, n_sections - 1];
    for (field, size) in image[52..64].chunks_exact_mut(2).zip(sizes) {
        field.copy_from_slice(&size.to_le_bytes());
    }
    ElfFile::from_bytes(image).unwrap()
}

/// The header of a section with data (`SHT_PROGBITS`).
fn section(name: usize, offset: usize, size: usize) -> Vec<u8> {
    let mut header = u32::try_from(name).unwrap().to_le_bytes().to_vec();
    header.extend(1_u32.to_le_bytes());
    header.extend(words(&[0, 0, offset as u64, size as u64, 0, 1, 0]));
    header
}
