//! Turns an ELF file into what unwinding needs of it: segments, build-id, call frame information.
//!
//! Code bytes are not kept (20 MB for a ceph-osd); checks that need them ask for them.

use std::sync::Arc;

use dwarf_stream::elf::{AsFile, ElfError, ElfFile, Kind, Segment, Source};
use thiserror::Error;
use wcprof_types::{BuildId, FileOffset, LoadBias, Mapping, Svma};

use crate::index::{Cfi, Place, SectionKind};

/// Largest section, bytes. Chromium's `.eh_frame`, the largest known, has about 20 MB.
const MAX_SECTION: u64 = 64 << 20;
/// Most program headers; real files have about 14.
const MAX_SEGMENTS: usize = 256;
/// Addresses of a loadable file lie below this (the lower half of the address space).
const MAX_SVMA: u64 = 1 << 47;
const PAGE: u64 = 4096;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;

/// Why a file gives no [`ModuleCode`].
#[derive(Debug, Error)]
pub enum CodeError {
    /// It cannot be read, or is no ELF file.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is for another machine.
    #[error("not an x86-64 ELF file (machine {0})")]
    NotX86_64(u16),
    /// Its call frame information exceeds what the reader permits.
    #[error("its call frame information takes more memory than is left for it")]
    NoRoom,
    /// A header points outside the address space or is missing.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

/// What unwinding needs of an ELF file. Shared between the processes that map it.
#[derive(Debug)]
pub struct ModuleCode {
    build_id: Option<BuildId>,
    /// The `PT_LOAD` segments, in the file's order.
    loads: Vec<Segment>,
    base: Svma,
    end: Svma,
    pub(crate) cfi: Option<Cfi>,
    pub(crate) debug_cfi: Option<Cfi>,
}

impl ModuleCode {
    /// Reads an ELF file. Missing, damaged or very large call frame information is no error: the module then
    /// has none (see [`Self::n_fdes`]). [`CodeError::NoRoom`] is one: the code takes at most `room` bytes of heap
    /// memory, and no section half of that.
    pub fn read(file: impl AsFile, room: usize) -> Result<Self, CodeError> {
        let max_section = MAX_SECTION.min(room as u64 / 2);
        let code = Self::new(Source::from_file(file)?, max_section)?;
        match code.heap_bytes() <= room {
            true => Ok(code),
            false => Err(CodeError::NoRoom),
        }
    }

    /// The same of an image in memory, such as the vdso's.
    pub fn parse(bytes: &[u8]) -> Result<Self, CodeError> {
        Self::new(Source::Bytes(bytes.to_vec()), MAX_SECTION)
    }

    fn new(source: Source, max_section: u64) -> Result<Self, CodeError> {
        let elf = ElfFile::parse(source, Kind::Loaded)?;
        if elf.machine != EM_X86_64 {
            return Err(CodeError::NotX86_64(elf.machine));
        }
        let loads = loads(&elf)?;
        let base = loads.first().map_or(0, |l| l.address) & !(PAGE - 1);
        let ends = loads.iter().map(|l| l.address + l.memory_size);
        let end = ends.max().unwrap_or(0);
        let section_start = |name| elf.section(name).map_or(0, |s| s.address);
        let place = |svma| Place {
            svma,
            base,
            text: section_start(".text"),
            got: section_start(".got"),
        };
        let is_code = |svma| is_code(&loads, svma);
        let is_useful = |cfi: &Cfi| cfi.n_fdes() > 0;
        let cfi = eh_frame(&elf, &loads, max_section)?.map(|(svma, data)| {
            Cfi::build(SectionKind::EhFrame, data.into(), place(svma), is_code)
        });
        let debug_frame = elf.section(".debug_frame");
        let debug_frame = debug_frame.map(|section| elf.read(section, max_section));
        let debug_frame = debug_frame.map_or(Ok(None), if_room)?;
        let debug_cfi = debug_frame
            .map(|data| Cfi::build(SectionKind::DebugFrame, data.into(), place(0), is_code));
        Ok(Self {
            build_id: elf.build_id().and_then(|id| BuildId::new(&id)),
            cfi: cfi.filter(is_useful),
            debug_cfi: debug_cfi.filter(is_useful),
            base: Svma(base),
            end: Svma(end),
            loads,
        })
    }

    /// The build-id note.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Base that relative addresses count from: the page of the first `PT_LOAD`.
    pub fn base(&self) -> Svma {
        self.base
    }

    /// First address after the last `PT_LOAD`.
    pub fn end(&self) -> Svma {
        self.end
    }

    /// The load bias, when `mapping` is of this file; `None` when no segment of it has that place
    /// in the file.
    pub fn load_bias(&self, mapping: &Mapping) -> Option<LoadBias> {
        load_bias(&self.loads, mapping)
    }

    /// Whether the address is in an executable segment.
    pub fn is_code(&self, svma: Svma) -> bool {
        is_code(&self.loads, svma.0)
    }

    /// Position in the file of an address, for reading code bytes; `None` when it is not loaded
    /// from the file.
    pub fn file_offset(&self, svma: Svma) -> Option<FileOffset> {
        file_range(&self.loads, svma.0).map(|(offset, _)| FileOffset(offset))
    }

    /// First address of the function around `svma`, if an FDE covers it. Give it a lookup
    /// address: the instruction after a call may belong to the next function.
    pub fn fde_start(&self, svma: Svma) -> Option<Svma> {
        self.sections().find_map(|c| c.function_start(svma.0))
    }

    /// Whether an FDE begins at an address.
    pub(crate) fn has_fde_at(&self, svma: Svma) -> bool {
        self.sections().any(|c| c.has_fde_at(svma.0))
    }

    /// FDEs that can be used. Left out are damaged and over-long ones, and those for addresses outside the
    /// code (a linker leaves such ones in `.debug_frame` for functions that it dropped).
    pub fn n_fdes(&self) -> usize {
        self.sections().map(Cfi::n_fdes).sum()
    }

    /// Estimated heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.sections().map(Cfi::heap_bytes).sum::<usize>()
            + self.loads.len() * size_of::<Segment>()
    }

    pub(crate) fn sections(&self) -> impl Iterator<Item = &Cfi> {
        self.cfi.iter().chain(&self.debug_cfi)
    }

    /// Whether two files would unwind alike; compares the bytes, so that a forged build-id gains
    /// nothing.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let data = |c: &Option<Cfi>| c.as_ref().map(|c| (c.svma, Arc::clone(&c.data)));
        self.build_id == other.build_id
            && self.loads == other.loads
            && data(&self.cfi) == data(&other.cfi)
            && data(&self.debug_cfi) == data(&other.debug_cfi)
    }
}

/// The checked `PT_LOAD` segments.
fn loads(elf: &ElfFile) -> Result<Vec<Segment>, CodeError> {
    if elf.segments.len() > MAX_SEGMENTS {
        return Err(CodeError::Malformed("too many program headers"));
    }
    let fits =
        |from: u64, size: u64, limit: u64| from.checked_add(size).is_some_and(|end| end <= limit);
    let loads = elf.segments.iter().filter(|s| s.kind == PT_LOAD).copied();
    let loads: Vec<Segment> = loads.collect();
    let is_valid = |l: &Segment| {
        fits(l.address, l.memory_size, MAX_SVMA) && fits(l.offset, l.file_size, i64::MAX as u64)
    };
    match loads.as_slice() {
        [] => Err(CodeError::Malformed("no PT_LOAD segment")),
        loads if !loads.iter().all(is_valid) => {
            Err(CodeError::Malformed("PT_LOAD outside the address space"))
        }
        _ => Ok(loads),
    }
}

/// The load bias of a file with these `PT_LOAD` segments, when `mapping` is of it; `None` when no segment of it
/// has that place in the file.
pub fn load_bias(loads: &[Segment], mapping: &Mapping) -> Option<LoadBias> {
    let FileOffset(offset) = mapping.offset;
    // A page of the file may be mapped twice, at the end of one segment and the start of the
    // next: the right one has the mapping's permission.
    let holds = |l: &&Segment| {
        let end = l.offset.saturating_add(l.file_size);
        let end = end.saturating_add(PAGE - 1) & !(PAGE - 1);
        l.file_size > 0 && ((l.offset & !(PAGE - 1))..end).contains(&offset)
    };
    let mut held = loads.iter().filter(holds);
    let segment = held
        .clone()
        .find(|l| is_executable(l) == mapping.executable)
        .or_else(|| held.next())?;
    let svma = segment.address.wrapping_sub(segment.offset);
    let svma = svma.wrapping_add(offset);
    Some(LoadBias(mapping.start.0.wrapping_sub(svma)))
}

fn is_executable(load: &Segment) -> bool {
    load.flags & PF_X != 0
}

fn is_code(loads: &[Segment], svma: u64) -> bool {
    let is_inside = |l: &Segment| {
        svma.checked_sub(l.address)
            .is_some_and(|o| o < l.memory_size)
    };
    loads.iter().any(|l| is_executable(l) && is_inside(l))
}

/// Where in the file an address is, and how many bytes follow it; `None` outside what is loaded from the
/// file.
fn file_range(loads: &[Segment], svma: u64) -> Option<(u64, u64)> {
    loads.iter().find_map(|l| {
        let into = svma.checked_sub(l.address).filter(|i| *i < l.file_size)?;
        Some((l.offset + into, l.file_size - into))
    })
}

/// Address and bytes of `.eh_frame`: the section, else what `PT_GNU_EH_FRAME` points to.
fn eh_frame(
    elf: &ElfFile,
    loads: &[Segment],
    max_section: u64,
) -> Result<Option<(u64, Vec<u8>)>, CodeError> {
    if let Some(section) = elf.section(".eh_frame") {
        let data = if_room(elf.read(section, max_section))?;
        return Ok(data.map(|data| (section.address, data)));
    }
    // The segment's end bounds it, a zero-length entry ends it.
    let Some((svma, offset, size)) = place_by_header(elf, loads) else {
        return Ok(None);
    };
    let read = size.min(max_section);
    let data = elf.read_range(format_args!(".eh_frame"), offset, read, max_section);
    let Some(mut data) = if_room(data)? else {
        return Ok(None);
    };
    let n = terminated_len(&data);
    if read < size.min(MAX_SECTION) && u32_at(&data, n) != Some(0) {
        return Err(CodeError::NoRoom);
    }
    data.truncate(n);
    data.shrink_to_fit();
    Ok(Some((svma, data)))
}

/// What was read, unless it is damaged or larger than any real section.
fn if_room(read: Result<Vec<u8>, ElfError>) -> Result<Option<Vec<u8>>, CodeError> {
    match read {
        Err(ElfError::TooLarge { size, .. }) if size <= MAX_SECTION => Err(CodeError::NoRoom),
        read => Ok(read.ok()),
    }
}

/// Address and offset of `.eh_frame` by its header, and the bytes up to the end of its segment.
fn place_by_header(elf: &ElfFile, loads: &[Segment]) -> Option<(u64, u64, u64)> {
    let header = elf.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
    let (what, size) = (format_args!(".eh_frame_hdr"), header.file_size.min(16));
    let bytes = elf.read_range(what, header.offset, size, size).ok()?;
    let svma = match bytes.get(..2)? {
        // DW_EH_PE_pcrel | DW_EH_PE_sdata4, the only encoding that linkers write.
        [1, 0x1b] => header
            .address
            .wrapping_add(4)
            .wrapping_add_signed(i64::from(u32_at(&bytes, 4)? as i32)),
        [1, 0x03] => u64::from(u32_at(&bytes, 4)?),
        [1, 0x04 | 0x00] => u64_at(&bytes, 4)?,
        _ => return None,
    };
    let (offset, size) = file_range(loads, svma)?;
    Some((svma, offset, size.min(elf.len().checked_sub(offset)?)))
}

/// Length of the entries before the zero-length one.
fn terminated_len(data: &[u8]) -> usize {
    let mut at = 0_usize;
    loop {
        let next = match u32_at(data, at) {
            None | Some(0) => return at,
            Some(u32::MAX) => u64_at(data, at + 4).and_then(|l| l.checked_add(12)),
            Some(length) => Some(u64::from(length) + 4),
        };
        let end = next
            .and_then(|n| usize::try_from(n).ok())
            .and_then(|n| at.checked_add(n))
            .filter(|end| *end <= data.len());
        match end {
            Some(end) => at = end,
            None => return at,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
