//! Turns an ELF file into what unwinding needs of it: segments, build-id, call frame information.
//!
//! Code bytes are not kept (20 MB for a ceph-osd); checks that need them ask for them.

use std::ops::Range;
use std::sync::Arc;

use dwarf_stream::elf::{AsFile, DynamicSymbols, ElfError, ElfFile, Kind, Source};
use wcprof_types::{BuildId, FileOffset, LoadBias, Mapping, Svma};

use crate::error::CodeError;
use crate::go::GoFrames;
use crate::index::{Cfi, Place, SectionKind};
use crate::loads::Loads;

/// Largest section, bytes. Chromium's `.eh_frame`, the largest known, has about 20 MB.
const MAX_SECTION: u64 = 64 << 20;
/// Longest function that a program without call frame information there begins with. musl's `_start` has 22 bytes.
const MAX_ENTRY: u64 = 64;
const EM_X86_64: u16 = 62;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;

/// `.debug_frame` of a separate debug file, where compilers put call frame information of code that needs none to run
/// (`-fno-asynchronous-unwind-tables -g`, musl).
#[derive(Debug)]
pub struct DebugFrames {
    build_id: Option<BuildId>,
    data: Vec<u8>,
}

impl DebugFrames {
    /// Reads a debug file, of which it keeps at most `room` bytes; `Ok(None)` when it has none.
    ///
    /// # Errors
    /// As [`ModuleCode::read`].
    pub fn read(file: impl AsFile, room: usize) -> Result<Option<Self>, CodeError> {
        let elf = ElfFile::parse(Source::from_file(file)?, Kind::Linked)?;
        let Some(section) = elf.debug_section("debug_frame") else {
            return Ok(None);
        };
        let data = if_room(elf.read(section, MAX_SECTION.min(room as u64)))?;
        let build_id = elf.build_id().and_then(|id| BuildId::new(&id));
        Ok(data.map(|data| Self { build_id, data }))
    }
}

/// What unwinding needs of an ELF file. Shared between the processes that map it.
#[derive(Debug)]
pub struct ModuleCode {
    build_id: Option<BuildId>,
    /// Where the program begins; 0 without such a place.
    entry: u64,
    loads: Loads,
    pub(crate) cfi: Option<Cfi>,
    pub(crate) debug_cfi: Option<Cfi>,
    /// Of a Go program.
    pub(crate) go: Option<GoFrames>,
    /// File name of its debug file, where it lacks call frame information.
    debug_link: Option<String>,
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
        let loads = Loads::of(&elf)?;
        let section_start = |name| elf.section(name).map_or(0, |s| s.address);
        let place = |svma| Place {
            svma,
            base: loads.base().0,
            text: section_start(".text"),
            got: section_start(".got"),
        };
        let is_code = |svma| loads.is_code(svma);
        let is_useful = |cfi: &Cfi| cfi.n_fdes() > 0;
        let cfi = eh_frame(&elf, &loads, max_section)?.map(|(svma, data)| {
            Cfi::build(SectionKind::EhFrame, data.into(), place(svma), is_code)
        });
        let debug_frame = elf.debug_section("debug_frame");
        let debug_frame = debug_frame.map(|section| elf.read(section, max_section));
        let debug_frame = debug_frame.map_or(Ok(None), if_room)?;
        let debug_cfi = debug_frame
            .map(|data| Cfi::build(SectionKind::DebugFrame, data.into(), place(0), is_code));
        let go = if_room(GoFrames::read(&elf, max_section))?.flatten();
        let mut code = Self {
            entry: elf.entry,
            go,
            build_id: elf.build_id().and_then(|id| BuildId::new(&id)),
            cfi: cfi.filter(is_useful),
            debug_cfi: debug_cfi.filter(is_useful),
            loads,
            debug_link: None,
        };
        if code.lacks_frames() {
            let link = elf.debug_link().ok().flatten();
            code.debug_link = link.map(|link| link.file_name);
        }
        Ok(code)
    }

    /// Where a file has the list of code that its program makes and registers for debuggers (GDB's JIT interface); `None`
    /// without one.
    pub fn jit_descriptor(file: impl AsFile) -> Option<Svma> {
        let source = Source::from_file(file).ok()?;
        let elf = ElfFile::parse(source, Kind::Loaded).ok()?;
        let symbols = DynamicSymbols::read(&elf).ok()??;
        symbols.find("__jit_debug_descriptor").map(Svma)
    }

    /// Whether call frame information covers less than half of its code: its debug file may have the rest.
    pub fn lacks_frames(&self) -> bool {
        let n_code = self.code().map(|range| range.end - range.start);
        let n_covered = self.sections().map(|cfi| cfi.n_covered);
        let n_covered = n_covered.fold(0, u64::saturating_add);
        self.go.is_none() && self.debug_cfi.is_none() && n_covered < n_code.sum::<u64>() / 2
    }

    /// File name of the debug file that it names, if it lacks call frame information.
    pub fn debug_link(&self) -> Option<&str> {
        self.debug_link.as_deref()
    }

    /// Takes the call frame information of its debug file; false for that of another file.
    pub fn add_debug_frames(&mut self, frames: DebugFrames) -> bool {
        if self.build_id.is_none() || self.build_id != frames.build_id {
            return false;
        }
        let place = Place {
            svma: 0,
            base: self.loads.base().0,
            text: 0,
            got: 0,
        };
        let is_code = |svma| self.loads.is_code(svma);
        let cfi = Cfi::build(SectionKind::DebugFrame, frames.data.into(), place, is_code);
        self.debug_cfi = Some(cfi).filter(|cfi| cfi.n_fdes() > 0);
        self.debug_cfi.is_some()
    }

    /// The build-id note.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Base that relative addresses count from: the page of the first `PT_LOAD`.
    pub fn base(&self) -> Svma {
        self.loads.base()
    }

    /// First address after the last `PT_LOAD`.
    pub fn end(&self) -> Svma {
        self.loads.end()
    }

    /// The load bias, when `mapping` is of this file; `None` when no segment of it has that place
    /// in the file.
    pub fn load_bias(&self, mapping: &Mapping) -> Option<LoadBias> {
        self.loads.bias(mapping)
    }

    /// Whether the address is in an executable segment.
    pub fn is_code(&self, svma: Svma) -> bool {
        self.loads.is_code(svma.0)
    }

    /// Addresses of the executable segments.
    pub(crate) fn code(&self) -> impl Iterator<Item = Range<u64>> {
        self.loads.code()
    }

    /// Position in the file of whole pages of an executable segment; `None` for other pages.
    pub fn code_offset(&self, pages: Range<Svma>) -> Option<FileOffset> {
        let offset = self.loads.code_offset(pages.start.0..pages.end.0);
        offset.map(FileOffset)
    }

    /// Position in the file of an address, for reading code bytes; `None` when it is not loaded
    /// from the file.
    pub fn file_offset(&self, svma: Svma) -> Option<FileOffset> {
        let range = self.loads.file_range(svma.0);
        range.map(|(offset, _)| FileOffset(offset))
    }

    /// First address of the function around `svma`, if an FDE or a table of Go's covers it. Give it a lookup
    /// address: the instruction after a call may belong to the next function.
    pub fn fde_start(&self, svma: Svma) -> Option<Svma> {
        let go = self.go.as_ref().and_then(|go| go.function_start(svma.0));
        let by_fde = || self.sections().find_map(|c| c.function_start(svma.0));
        go.map(Svma).or_else(by_fde)
    }

    /// Whether an address is in the function that the program begins with, which has no FDE.
    pub(crate) fn is_in_entry(&self, svma: Svma) -> bool {
        let into = svma.0.checked_sub(self.entry).filter(|_| self.entry > 0);
        into.is_some_and(|into| into < MAX_ENTRY) && self.fde_start(svma).is_none()
    }

    /// Whether an FDE begins at an address.
    pub(crate) fn has_fde_at(&self, svma: Svma) -> bool {
        self.sections().any(|c| c.has_fde_at(svma.0))
    }

    /// FDEs and functions of Go that can be used. Left out are damaged and over-long ones, and those for addresses outside the
    /// code (a linker leaves such ones in `.debug_frame` for functions that it dropped).
    pub fn n_fdes(&self) -> usize {
        let n_go = self.go.as_ref().map_or(0, GoFrames::len);
        self.sections().map(Cfi::n_fdes).sum::<usize>() + n_go
    }

    /// Estimated heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        let go = self.go.as_ref().map_or(0, GoFrames::heap_bytes);
        self.sections().map(Cfi::heap_bytes).sum::<usize>() + self.loads.heap_bytes() + go
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
            && self.go == other.go
    }
}

/// Address and bytes of `.eh_frame`: the section, else what `PT_GNU_EH_FRAME` points to.
fn eh_frame(
    elf: &ElfFile,
    loads: &Loads,
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
fn if_room<T>(read: Result<T, ElfError>) -> Result<Option<T>, CodeError> {
    match read {
        Err(ElfError::TooLarge { size, .. }) if size <= MAX_SECTION => Err(CodeError::NoRoom),
        read => Ok(read.ok()),
    }
}

/// Address and offset of `.eh_frame` by its header, and the bytes up to the end of its segment.
fn place_by_header(elf: &ElfFile, loads: &Loads) -> Option<(u64, u64, u64)> {
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
    let (offset, size) = loads.file_range(svma)?;
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
