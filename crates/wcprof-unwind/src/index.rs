//! Turns a `.eh_frame` or `.debug_frame` section into a table that finds the FDE of an address.
//!
//! The table is always built from the section itself: a linker's `.eh_frame_hdr` may be missing,
//! stale (edited by tools) or hostile.

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
    /// The module's base.
    base: u64,
    /// Of each FDE its first address, relative to the base, and its offset in the section; by address.
    table: Vec<(u32, u32)>,
    pub bases: BaseAddresses,
}

impl std::fmt::Debug for Cfi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cfi")
            .field("kind", &self.kind)
            .field("len", &self.data.len())
            .field("n_fdes", &self.n_fdes())
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
        let bases = BaseAddresses::default()
            .set_eh_frame(place.svma)
            .set_eh_frame_hdr(place.base)
            .set_text(place.text)
            .set_got(place.got);
        let mut cfi = Self {
            kind,
            data,
            svma: place.svma,
            base: place.base,
            table: Vec::new(),
            bases,
        };
        let mut pairs = match kind {
            SectionKind::EhFrame => scan(&cfi.eh_frame(), &cfi.bases, is_code),
            SectionKind::DebugFrame => scan(&cfi.debug_frame(), &cfi.bases, is_code),
        };
        pairs.sort_unstable();
        pairs.dedup_by_key(|(start, _)| *start);
        let small = pairs.into_iter().filter_map(|(start, offset)| {
            let start = u32::try_from(start.checked_sub(place.base)?).ok()?;
            Some((start, u32::try_from(offset).ok()?))
        });
        cfi.table = small.collect();
        cfi
    }

    pub fn n_fdes(&self) -> usize {
        self.table.len()
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
        let n_before = self.table.partition_point(|(start, _)| *start <= wanted);
        let (_, offset) = self.table.get(n_before.checked_sub(1)?)?;
        Some(*offset as usize)
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
        self.data.len() + size_of_val(&self.table[..])
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
