//! Turns a `.eh_frame` or `.debug_frame` section into a table that finds the FDE of an address.
//!
//! The table is always built from the section itself: a linker's `.eh_frame_hdr` may be missing,
//! stale (edited by tools) or hostile. It is laid out as a `.eh_frame_hdr` (version 1, 8-byte
//! `eh_frame_ptr`, 4-byte count, sorted 4-byte pairs relative to the table; Linux Standard Base
//! core, chapter 10.6.2), so that framehop searches the very same bytes.

use std::sync::Arc;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EndianSlice,
    FrameDescriptionEntry, LittleEndian, UnwindOffset, UnwindSection,
};
use wcprof_types::Svma;

pub(crate) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Longest FDE or CIE that is used, in bytes: one evaluation walks all of it. Real ones stay
/// below a few KiB.
const MAX_ENTRY: usize = 64 << 10;

/// Most FDEs in a section; Chromium has about a million.
const MAX_FDES: usize = 4 << 20;

/// Table bytes before the first pair.
const HEADER: usize = 16;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SectionKind {
    EhFrame,
    DebugFrame,
}

/// Addresses that the section's pointers may be relative to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    /// The section itself; 0 for `.debug_frame`, which is not loaded.
    pub svma: u64,
    /// The module's base.
    pub base: u64,
    pub text: u64,
    pub got: u64,
}

/// Call frame information of a module with its table.
#[derive(Clone)]
pub(crate) struct Cfi {
    pub kind: SectionKind,
    /// The section.
    pub data: Arc<[u8]>,
    /// Its address; 0 for `.debug_frame`, which is not loaded.
    pub svma: u64,
    /// The module's base, which is also the address that the table claims to lie at.
    pub base: u64,
    /// The table.
    pub table: Arc<[u8]>,
    pub bases: BaseAddresses,
    /// Start of `.text` and `.got`, which pointers may be relative to.
    pub text: u64,
    pub got: u64,
    n_fdes: usize,
}

impl std::fmt::Debug for Cfi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cfi")
            .field("kind", &self.kind)
            .field("len", &self.data.len())
            .field("n_fdes", &self.n_fdes)
            .finish_non_exhaustive()
    }
}

impl Cfi {
    /// Indexes a section. `is_code` says whether an FDE's first address lies in the module's
    /// executable segments.
    pub fn build(
        kind: SectionKind,
        data: Arc<[u8]>,
        place: Place,
        is_code: impl Fn(u64) -> bool,
    ) -> Self {
        let Place {
            svma,
            base,
            text,
            got,
        } = place;
        let bases = BaseAddresses::default()
            .set_eh_frame(svma)
            .set_eh_frame_hdr(base)
            .set_text(text)
            .set_got(got);
        let mut cfi = Self {
            text,
            got,
            kind,
            svma,
            base,
            table: Arc::new([]),
            bases,
            n_fdes: 0,
            data,
        };
        let mut pairs = match kind {
            SectionKind::EhFrame => scan(&cfi.eh_frame(), &cfi.bases, is_code),
            SectionKind::DebugFrame => scan(&cfi.debug_frame(), &cfi.bases, is_code),
        };
        pairs.sort_unstable();
        pairs.dedup_by_key(|(start, _)| *start);
        // `.debug_frame` has no address: its offsets are stored as they are.
        let fde_origin = match kind {
            SectionKind::EhFrame => svma.wrapping_sub(base),
            SectionKind::DebugFrame => 0,
        };
        let mut table = Vec::with_capacity(HEADER + pairs.len() * 8);
        // DW_EH_PE_udata8, DW_EH_PE_udata4, DW_EH_PE_datarel | DW_EH_PE_sdata4.
        table.extend_from_slice(&[1, 0x04, 0x03, 0x3b]);
        table.extend_from_slice(&svma.to_le_bytes());
        table.extend_from_slice(&[0; 4]);
        for (start, offset) in pairs {
            let pair = i32::try_from(start.wrapping_sub(base) as i64)
                .ok()
                .zip(i32::try_from(fde_origin.wrapping_add(offset as u64) as i64).ok());
            let Some((start, fde)) = pair.filter(|(start, _)| *start >= 0) else {
                continue;
            };
            table.extend_from_slice(&start.to_le_bytes());
            table.extend_from_slice(&fde.to_le_bytes());
            cfi.n_fdes += 1;
        }
        // MAX_FDES keeps the count far below 2^32.
        table[12..16].copy_from_slice(&(cfi.n_fdes as u32).to_le_bytes());
        cfi.table = table.into();
        cfi
    }

    pub fn n_fdes(&self) -> usize {
        self.n_fdes
    }

    pub fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.data, LittleEndian);
        section.set_address_size(8);
        section
    }

    pub fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.data, LittleEndian);
        section.set_address_size(8);
        section
    }

    /// Offset of the FDE with the greatest start not above `svma`; it may end before it.
    pub fn fde_offset(&self, svma: u64) -> Option<usize> {
        let wanted = u32::try_from(svma.checked_sub(self.base)?).ok()?;
        let (pairs, _) = self.table.get(HEADER..)?.as_chunks::<8>();
        let start = |[a, b, c, d, ..]: &[u8; 8]| u32::from_le_bytes([*a, *b, *c, *d]);
        let at = pairs.partition_point(|pair| start(pair) <= wanted);
        let [.., a, b, c, d] = pairs.get(at.checked_sub(1)?)?;
        let relative = i64::from(i32::from_le_bytes([*a, *b, *c, *d]));
        let offset = match self.kind {
            SectionKind::DebugFrame => relative,
            SectionKind::EhFrame => relative.wrapping_sub(self.svma.wrapping_sub(self.base) as i64),
        };
        usize::try_from(offset).ok()
    }

    /// First address of the FDE that covers `svma`.
    pub fn function_start(&self, svma: u64) -> Option<Svma> {
        let offset = self.fde_offset(svma)?;
        let fde = match self.kind {
            SectionKind::EhFrame => fde_at(&self.eh_frame(), &self.bases, offset),
            SectionKind::DebugFrame => fde_at(&self.debug_frame(), &self.bases, offset),
        }?;
        fde.contains(svma).then(|| Svma(fde.initial_address()))
    }

    pub fn heap_bytes(&self) -> usize {
        self.data.len() + self.table.len()
    }
}

/// Parses the FDE at an offset.
pub(crate) fn fde_at<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: usize,
) -> Option<FrameDescriptionEntry<Slice<'a>>> {
    section
        .fde_from_offset(bases, S::Offset::from(offset), S::cie_from_offset)
        .ok()
}

/// Start and offset of every usable FDE.
fn scan<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    is_code: impl Fn(u64) -> bool,
) -> Vec<(u64, usize)> {
    let mut pairs = Vec::new();
    let mut last_cie: Option<CommonInformationEntry<Slice<'a>>> = None;
    let mut entries = section.entries(bases);
    // After an error the iterator is at its end.
    while let Ok(Some(entry)) = entries.next()
        && pairs.len() < MAX_FDES
    {
        let partial = match entry {
            CieOrFde::Cie(cie) => {
                last_cie = Some(cie);
                continue;
            }
            CieOrFde::Fde(partial) => partial,
        };
        let fde = partial.parse(|section, bases, offset| {
            let known = last_cie
                .clone()
                .filter(|c| c.offset() == UnwindOffset::into(offset));
            let cie = known.map_or_else(|| section.cie_from_offset(bases, offset), Ok)?;
            last_cie = Some(cie.clone());
            Ok(cie)
        });
        if let Ok(fde) = fde
            && fde.entry_len() <= MAX_ENTRY
            && fde.cie().entry_len() <= MAX_ENTRY
            && fde.len() > 0
            && is_code(fde.initial_address())
        {
            pairs.push((fde.initial_address(), fde.offset()));
        }
    }
    pairs
}
