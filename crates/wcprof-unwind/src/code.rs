//! Turns an ELF file into what unwinding needs of it: segments, build-id, call frame information.
//!
//! Code bytes are not kept (20 MB for a ceph-osd); checks that need them ask for them.

use std::fmt;
use std::sync::Arc;

use object::read::{CompressedData, CompressionFormat};
use wcprof_types::{Avma, BuildId, FileOffset, LoadBias, Mapping, Svma};

use crate::elf::{
    Elf, ElfError, LoadSegment, PT_GNU_EH_FRAME, PT_NOTE, Piece, ReadAt, SHF_COMPRESSED, SHT_NOTE,
    read_checked, u32_at, u64_at,
};
use crate::index::{Cfi, Place, SectionKind};

/// Most bytes of one section. Chromium's `.eh_frame`, the largest known, has about 20 MB.
const MAX_SECTION: u64 = 64 << 20;

const MAX_NOTES: u64 = 64 << 10;

const PAGE: u64 = 4096;

/// What unwinding needs of an ELF file. Shared between the processes that map it.
#[derive(Debug)]
pub struct ModuleCode {
    build_id: Option<BuildId>,
    loads: Vec<LoadSegment>,
    base: Svma,
    end: Svma,
    pub(crate) cfi: Option<Cfi>,
    pub(crate) debug_cfi: Option<Cfi>,
}

impl ModuleCode {
    /// Reads an ELF file. Missing or damaged call frame information is no error: the module then
    /// has none (see [`Self::n_fdes`] and [`Self::n_bad_fdes`]).
    pub fn parse<R: ReadAt + ?Sized>(file: &R) -> Result<Self, ElfError> {
        let elf = Elf::parse(file)?;
        let base = elf.loads.iter().map(|l| l.svma).next().unwrap_or(0) & !(PAGE - 1);
        let end = elf
            .loads
            .iter()
            .map(|l| l.svma + l.mem_size)
            .max()
            .unwrap_or(0);
        let build_id = build_id(file, &elf);
        let loads = elf.loads.clone();
        let is_code = |svma: u64| {
            loads
                .iter()
                .any(|l| l.executable && svma.checked_sub(l.svma).is_some_and(|o| o < l.mem_size))
        };
        let section_start = |name: &[u8]| elf.section(name).map_or(0, |s| s.svma);
        let place = |svma| Place {
            svma,
            base,
            text: section_start(b".text"),
            got: section_start(b".got"),
        };
        let cfi = eh_frame(file, &elf).map(|(svma, data)| {
            Cfi::build(SectionKind::EhFrame, data.into(), place(svma), is_code)
        });
        let debug_cfi = elf
            .section(b".debug_frame")
            .and_then(|section| section_data(file, section))
            .map(|data| Cfi::build(SectionKind::DebugFrame, data.into(), place(0), is_code));
        Ok(Self {
            build_id,
            loads,
            base: Svma(base),
            end: Svma(end),
            cfi: cfi.filter(|c| c.n_fdes() > 0 || c.n_bad > 0),
            debug_cfi: debug_cfi.filter(|c| c.n_fdes() > 0 || c.n_bad > 0),
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

    /// The `PT_LOAD` segments, in the file's order.
    pub fn segments(&self) -> &[LoadSegment] {
        &self.loads
    }

    /// The load bias, when `mapping` is of this file; `None` when no segment of it has that place
    /// in the file.
    pub fn load_bias(&self, mapping: &Mapping) -> Option<LoadBias> {
        let FileOffset(offset) = mapping.offset;
        // A page of the file may be mapped twice, at the end of one segment and the start of the
        // next: the right one has the mapping's permission.
        let holds = |l: &&LoadSegment| {
            let end = (l.offset + l.file_size).saturating_add(PAGE - 1) & !(PAGE - 1);
            l.file_size > 0 && ((l.offset & !(PAGE - 1))..end).contains(&offset)
        };
        let segment = self
            .loads
            .iter()
            .filter(holds)
            .find(|l| l.executable == mapping.executable)
            .or_else(|| self.loads.iter().find(holds))?;
        let svma = segment
            .svma
            .wrapping_sub(segment.offset)
            .wrapping_add(offset);
        Some(LoadBias(mapping.start.0.wrapping_sub(svma)))
    }

    /// Whether the address is in an executable segment.
    pub fn is_code(&self, svma: Svma) -> bool {
        self.loads
            .iter()
            .any(|l| l.executable && svma.0.checked_sub(l.svma).is_some_and(|o| o < l.mem_size))
    }

    /// Position in the file of an address, for reading code bytes; `None` when it is not loaded
    /// from the file.
    pub fn file_offset(&self, svma: Svma) -> Option<FileOffset> {
        self.loads.iter().find_map(|l| {
            let into = svma.0.checked_sub(l.svma).filter(|i| *i < l.file_size)?;
            Some(FileOffset(l.offset + into))
        })
    }

    /// First address of the function around `svma`, as far as an FDE tells. Give it a lookup
    /// address: the instruction after a call may belong to the next function.
    pub fn fde_start(&self, svma: Svma) -> Option<Svma> {
        self.sections().find_map(|c| c.function_start(svma.0))
    }

    /// FDEs that can be used.
    pub fn n_fdes(&self) -> usize {
        self.sections().map(Cfi::n_fdes).sum()
    }

    /// FDEs that were left out: damaged, over-long or for addresses outside the code (a linker
    /// leaves such ones in `.debug_frame` for functions that it dropped).
    pub fn n_bad_fdes(&self) -> u64 {
        self.sections().map(|c| u64::from(c.n_bad)).sum()
    }

    /// Estimated heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.sections().map(Cfi::heap_bytes).sum::<usize>()
            + self.loads.len() * size_of::<LoadSegment>()
    }

    pub(crate) fn sections(&self) -> impl Iterator<Item = &Cfi> {
        self.cfi.iter().chain(&self.debug_cfi)
    }
}

impl fmt::Display for ModuleCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.build_id {
            Some(id) => write!(f, "build-id {id}"),
            None => write!(f, "no build-id"),
        }?;
        write!(f, ", {} FDEs", self.n_fdes())
    }
}

impl ModuleCode {
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

/// Address and bytes of `.eh_frame`: the section, else what `PT_GNU_EH_FRAME` points to.
fn eh_frame<R: ReadAt + ?Sized>(file: &R, elf: &Elf) -> Option<(u64, Vec<u8>)> {
    if let Some(section) = elf.section(b".eh_frame") {
        let data = section_data(file, section)?;
        return Some((section.svma, data));
    }
    // Its end is unknown; the segment's end bounds it, a zero-length entry ends it.
    let header = elf.others.iter().find(|p| p.kind == PT_GNU_EH_FRAME)?;
    let bytes = read_checked(
        file,
        ".eh_frame_hdr",
        header.offset,
        header.size,
        MAX_SECTION,
    )
    .ok()?;
    let svma = match bytes.get(..2)? {
        // DW_EH_PE_pcrel | DW_EH_PE_sdata4, the only encoding that linkers write.
        [1, 0x1b] => header
            .svma
            .wrapping_add(4)
            .wrapping_add_signed(i64::from(u32_at(&bytes, 4)? as i32)),
        [1, 0x03] => u64::from(u32_at(&bytes, 4)?),
        [1, 0x04 | 0x00] => u64_at(&bytes, 4)?,
        _ => return None,
    };
    let (offset, size) = elf.file_range(svma)?;
    let size = size.min(MAX_SECTION).min(file.size().checked_sub(offset)?);
    let mut data = read_checked(file, ".eh_frame", offset, size, MAX_SECTION).ok()?;
    data.truncate(terminated_len(&data));
    data.shrink_to_fit();
    Some((svma, data))
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

fn section_data<R: ReadAt + ?Sized>(file: &R, section: &Piece) -> Option<Vec<u8>> {
    let name = "section";
    let raw = read_checked(file, name, section.offset, section.size, MAX_SECTION).ok()?;
    if section.flags & SHF_COMPRESSED == 0 {
        return Some(raw);
    }
    // Elf64_Chdr: ch_type, reserved, ch_size, ch_addralign.
    let format = match u32_at(&raw, 0)? {
        1 => CompressionFormat::Zlib,
        2 => CompressionFormat::Zstandard,
        _ => return None,
    };
    let uncompressed_size = u64_at(&raw, 8).filter(|size| *size <= MAX_SECTION)?;
    let compressed = CompressedData {
        format,
        data: raw.get(24..)?,
        uncompressed_size,
    };
    compressed
        .decompress()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

/// The first `NT_GNU_BUILD_ID` of the note segments, else of the note sections.
fn build_id<R: ReadAt + ?Sized>(file: &R, elf: &Elf) -> Option<BuildId> {
    let segments = elf.others.iter().filter(|p| p.kind == PT_NOTE);
    let sections = elf.sections.iter().filter(|s| s.kind == SHT_NOTE);
    segments.chain(sections).find_map(|piece| {
        let notes = read_checked(file, "notes", piece.offset, piece.size, MAX_NOTES).ok()?;
        build_id_note(&notes)
    })
}

/// Elf64_Nhdr: namesz, descsz, type; name and descriptor are padded to 4 bytes.
pub(crate) fn build_id_note(notes: &[u8]) -> Option<BuildId> {
    let padded = |size: u32| (size as usize).checked_add(3).map(|s| s & !3);
    let mut at = 0_usize;
    loop {
        let name_size = u32_at(notes, at)?;
        let size = u32_at(notes, at + 4)?;
        let kind = u32_at(notes, at + 8)?;
        let name_at = at + 12;
        let data_at = name_at.checked_add(padded(name_size)?)?;
        let data = notes.get(data_at..data_at.checked_add(size as usize)?)?;
        if kind == 3 && notes.get(name_at..name_at + 4) == Some(b"GNU\0") && name_size == 4 {
            return BuildId::new(data);
        }
        at = data_at.checked_add(padded(size)?)?;
    }
}

/// First address of a mapped module under a bias, for callers that know only the file.
impl ModuleCode {
    /// The address range in the target at a bias; `None` when it wraps.
    pub fn avma_range(&self, bias: LoadBias) -> Option<std::ops::Range<Avma>> {
        let (start, end) = (bias.to_avma(self.base), bias.to_avma(self.end));
        (start < end).then_some(start..end)
    }
}
