//! Reads the headers of a 64-bit little-endian ELF file, whole or stripped of its section headers.
//!
//! Field offsets are from the ELF-64 object file format and `elf.h`. Nothing is trusted: counts
//! and sizes are capped and every read is checked against the file's size before it happens.

use std::io;
use std::os::unix::fs::FileExt;

use thiserror::Error;

/// A file's bytes by position.
pub trait ReadAt {
    /// Size of the file in bytes, as far as it is known; reads beyond it are not attempted.
    fn size(&self) -> u64;

    /// Exactly `len` bytes from `offset`; fewer is an error.
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>>;
}

impl ReadAt for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        usize::try_from(offset)
            .ok()
            .and_then(|from| self.get(from..from.checked_add(len)?))
            .map(<[u8]>::to_vec)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl ReadAt for std::fs::File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// Why a file gives no [`ModuleCode`](crate::ModuleCode).
#[derive(Debug, Error)]
pub enum ElfError {
    /// The file could not be read.
    #[error("failed to read {len} bytes at {offset:#x}")]
    Read {
        /// Where.
        offset: u64,
        /// How much.
        len: u64,
        /// Why.
        source: io::Error,
    },
    /// No ELF magic.
    #[error("not an ELF file")]
    NotElf,
    /// 32-bit, big-endian or another machine.
    #[error(
        "not a 64-bit little-endian x86-64 ELF file (class {class}, data {data}, machine {machine})"
    )]
    NotX86_64 {
        /// `EI_CLASS`.
        class: u8,
        /// `EI_DATA`.
        data: u8,
        /// `e_machine`.
        machine: u16,
    },
    /// A header points outside the file or contradicts itself.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
    /// Larger than wcprof is willing to hold in memory.
    #[error("{what} of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

/// A `PT_LOAD` segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LoadSegment {
    /// `p_vaddr`.
    pub svma: u64,
    /// `p_memsz`.
    pub mem_size: u64,
    /// `p_offset`.
    pub offset: u64,
    /// `p_filesz`.
    pub file_size: u64,
    /// `PF_X`.
    pub executable: bool,
}

/// A program header that is not a `PT_LOAD`, or a section: a piece of the file.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// `sh_name` resolved; empty for a program header.
    pub name: Vec<u8>,
    /// `p_type` or `sh_type`.
    pub kind: u32,
    /// `sh_flags`; 0 for a program header.
    pub flags: u64,
    pub svma: u64,
    pub offset: u64,
    pub size: u64,
}

/// The headers.
#[derive(Debug)]
pub(crate) struct Elf {
    pub loads: Vec<LoadSegment>,
    pub others: Vec<Piece>,
    /// Empty when stripped of section headers, or when they are malformed.
    pub sections: Vec<Piece>,
}

pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;

/// Real files have about 14 program headers and 40 sections; `-ffunction-sections` objects and
/// kernels have more sections, but are not loaded by a process.
const MAX_PROGRAM_HEADERS: u16 = 256;
const MAX_SECTIONS: u64 = 16_384;
const MAX_SECTION_NAMES: u64 = 1 << 20;

/// Addresses of a loadable file lie below this (the lower half of the address space).
const MAX_SVMA: u64 = 1 << 47;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_le_bytes(*b))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// Reads a range that a header named, after checking it against the file's size and `limit`.
pub(crate) fn read_checked<R: ReadAt + ?Sized>(
    file: &R,
    what: &'static str,
    offset: u64,
    size: u64,
    limit: u64,
) -> Result<Vec<u8>, ElfError> {
    if size > limit {
        return Err(ElfError::TooLarge { what, size, limit });
    }
    if offset.checked_add(size).is_none_or(|end| end > file.size()) {
        return Err(ElfError::Malformed(
            "a header points beyond the end of the file",
        ));
    }
    let len = usize::try_from(size).map_err(|_| ElfError::Malformed("size beyond usize"))?;
    let bytes = file.read_at(offset, len).map_err(|source| ElfError::Read {
        offset,
        len: size,
        source,
    })?;
    if bytes.len() == len {
        Ok(bytes)
    } else {
        Err(ElfError::Malformed(
            "the file became shorter while it was read",
        ))
    }
}

impl Elf {
    pub fn parse<R: ReadAt + ?Sized>(file: &R) -> Result<Self, ElfError> {
        const CUT: ElfError = ElfError::Malformed("file header cut short");
        if file.size() < 64 {
            return Err(ElfError::NotElf);
        }
        let header = read_checked(file, "file header", 0, 64, 64)?;
        if !header.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        let (class, data) = (header[4], header[5]);
        let machine = u16_at(&header, 18).ok_or(CUT)?;
        if (class, data, machine) != (2, 1, 62) {
            return Err(ElfError::NotX86_64 {
                class,
                data,
                machine,
            });
        }
        let (loads, others) = program_headers(file, &header).ok_or(CUT)??;
        if loads.is_empty() {
            return Err(ElfError::Malformed("no PT_LOAD segment"));
        }
        let sections = section_headers(file, &header).unwrap_or_default();
        Ok(Self {
            loads,
            others,
            sections,
        })
    }

    pub fn section(&self, name: &[u8]) -> Option<&Piece> {
        self.sections
            .iter()
            .find(|s| s.name == name && s.kind != SHT_NOBITS)
    }

    /// Where in the file an address is; `None` outside what is loaded from the file.
    pub fn file_range(&self, svma: u64) -> Option<(u64, u64)> {
        self.loads.iter().find_map(|l| {
            let into = svma.checked_sub(l.svma).filter(|i| *i < l.file_size)?;
            Some((l.offset + into, l.file_size - into))
        })
    }
}

type ProgramHeaders = (Vec<LoadSegment>, Vec<Piece>);

fn program_headers<R: ReadAt + ?Sized>(
    file: &R,
    header: &[u8],
) -> Option<Result<ProgramHeaders, ElfError>> {
    let offset = u64_at(header, 32)?;
    let entry_size = u16_at(header, 54)?;
    let count = u16_at(header, 56)?;
    if entry_size != 56 || count == 0 || count > MAX_PROGRAM_HEADERS {
        return Some(Err(ElfError::Malformed("no usable program headers")));
    }
    let table = match read_checked(
        file,
        "program headers",
        offset,
        u64::from(count) * 56,
        1 << 20,
    ) {
        Ok(table) => table,
        Err(error) => return Some(Err(error)),
    };
    let (mut loads, mut others) = (Vec::new(), Vec::new());
    for entry in table.chunks_exact(56) {
        let kind = u32_at(entry, 0)?;
        let (offset, svma) = (u64_at(entry, 8)?, u64_at(entry, 16)?);
        let (file_size, mem_size) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
        if kind == 1 {
            let fits = |from: u64, size: u64, limit: u64| {
                from.checked_add(size).is_some_and(|end| end <= limit)
            };
            if !fits(svma, mem_size, MAX_SVMA) || !fits(offset, file_size, i64::MAX as u64) {
                return Some(Err(ElfError::Malformed(
                    "PT_LOAD outside the address space",
                )));
            }
            let executable = u32_at(entry, 4)? & 1 != 0;
            loads.push(LoadSegment {
                svma,
                mem_size,
                offset,
                file_size,
                executable,
            });
        } else {
            others.push(Piece {
                name: Vec::new(),
                kind,
                flags: 0,
                svma,
                offset,
                size: file_size,
            });
        }
    }
    Some(Ok((loads, others)))
}

/// `None` when there are none that can be used; the program headers suffice then.
fn section_headers<R: ReadAt + ?Sized>(file: &R, header: &[u8]) -> Option<Vec<Piece>> {
    let offset = u64_at(header, 40)?;
    let entry_size = u16_at(header, 58)?;
    let mut count = u64::from(u16_at(header, 60)?);
    let mut names = u32::from(u16_at(header, 62)?);
    if offset == 0 || entry_size != 64 {
        return None;
    }
    if count == 0 || names == 0xffff {
        // Extended numbering: the real values are in section 0.
        let first = read_checked(file, "section header", offset, 64, 64).ok()?;
        if count == 0 {
            count = u64_at(&first, 32)?;
        }
        if names == 0xffff {
            names = u32_at(&first, 40)?;
        }
    }
    if count > MAX_SECTIONS {
        return None;
    }
    let table = read_checked(
        file,
        "section headers",
        offset,
        count * 64,
        MAX_SECTIONS * 64,
    )
    .ok()?;
    let mut sections = Vec::new();
    for entry in table.chunks_exact(64) {
        sections.push((
            u32_at(entry, 0)?,
            Piece {
                name: Vec::new(),
                kind: u32_at(entry, 4)?,
                flags: u64_at(entry, 8)?,
                svma: u64_at(entry, 16)?,
                offset: u64_at(entry, 24)?,
                size: u64_at(entry, 32)?,
            },
        ));
    }
    let (_, strings) = sections.get(usize::try_from(names).ok()?)?;
    let strings = read_checked(
        file,
        "section names",
        strings.offset,
        strings.size,
        MAX_SECTION_NAMES,
    )
    .ok()?;
    Some(
        sections
            .into_iter()
            .map(|(name_offset, piece)| {
                let name = strings.get(name_offset as usize..).unwrap_or_default();
                let len = name.iter().take(64).position(|b| *b == 0).unwrap_or(0);
                Piece {
                    name: name[..len].to_vec(),
                    ..piece
                }
            })
            .collect(),
    )
}
