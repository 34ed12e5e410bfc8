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

/// Longest FDE that is used, in bytes: one evaluation walks all of it. Real ones stay
/// below a few KiB.
const MAX_ENTRY: usize = 64 << 10;

/// Longest CIE that is used, in bytes: it is parsed at each look at one of its FDEs. Real ones have some tens.
const MAX_CIE: usize = 1 << 10;

/// CIEs that are parsed once more for another FDE may have so many times the bytes of the section, and these. Compilers
/// need about as many as it has.
const CIE_BYTES: (usize, usize) = (4, 1 << 20);

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
    /// Bytes of code that its FDEs cover, as they say.
    pub n_covered: u64,
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
            n_covered: 0,
            bases,
        };
        let (mut pairs, n_covered) = match kind {
            SectionKind::EhFrame => scan(&cfi.eh_frame(), &cfi.bases, is_code),
            SectionKind::DebugFrame => scan(&cfi.debug_frame(), &cfi.bases, is_code),
        };
        cfi.n_covered = n_covered;
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
        let wanted = self.relative(svma)?;
        let n_before = self.table.partition_point(|(start, _)| *start <= wanted);
        let (_, offset) = self.table.get(n_before.checked_sub(1)?)?;
        Some(*offset as usize)
    }

    /// Whether an FDE begins at `svma`.
    pub fn has_fde_at(&self, svma: u64) -> bool {
        let start = |(start, _): &(u32, u32)| *start;
        let wanted = self.relative(svma);
        wanted.is_some_and(|wanted| self.table.binary_search_by_key(&wanted, start).is_ok())
    }

    /// An address as the table has it.
    fn relative(&self, svma: u64) -> Option<u32> {
        u32::try_from(svma.checked_sub(self.base)?).ok()
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

/// Start and offset of every usable FDE, and how many bytes all cover.
fn scan<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    is_code: impl Fn(u64) -> bool,
) -> (Vec<(u64, usize)>, u64) {
    let mut pairs = Vec::new();
    let mut n_covered = 0_u64;
    let data = section.section().slice();
    let mut n_bytes_left = CIE_BYTES.0.saturating_mul(data.len()) + CIE_BYTES.1;
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
            let n_bytes = entry_bytes(data, UnwindOffset::into(offset));
            let cie = match known {
                Some(cie) => cie,
                None if n_bytes > MAX_CIE.min(n_bytes_left) => {
                    return Err(gimli::Error::UnexpectedEof(gimli::ReaderOffsetId(0)));
                }
                None => {
                    // Also where it is none: whoever wrote the file chose how often it is looked at.
                    n_bytes_left -= n_bytes;
                    section.cie_from_offset(bases, offset)?
                }
            };
            last_cie = Some(cie.clone());
            Ok(cie)
        });
        if let Ok(fde) = fde
            && fde.entry_len() <= MAX_ENTRY
            && fde.cie().entry_len() <= MAX_CIE
            && fde.len() > 0
            && is_code(fde.initial_address())
        {
            pairs.push((fde.initial_address(), fde.offset()));
            n_covered = n_covered.saturating_add(fde.len());
        }
    }
    (pairs, n_covered)
}

/// Bytes of the entry at an offset, as it says (DWARF 5, section 7.4): those that its parser may look at.
fn entry_bytes(data: &[u8], offset: usize) -> usize {
    let length = data.get(offset..).and_then(<[u8]>::first_chunk);
    match length.map_or(0, |bytes| u32::from_le_bytes(*bytes)) {
        // The 64-bit format: no section needs it.
        u32::MAX => usize::MAX,
        length => (length as usize).saturating_add(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cie(n_padding: usize) -> Vec<u8> {
        // Identifier 0, version 1, no augmentation, factors 1 and -8, return address in register 16.
        let mut cie = vec![0, 0, 0, 0, 1, 0, 1, 0x78, 16];
        cie.resize(cie.len() + n_padding, 0);
        [&(cie.len() as u32).to_le_bytes()[..], &cie].concat()
    }

    /// An FDE of one byte at an address, which is at `at` in the section.
    fn fde(at: usize, cie: usize, address: u64) -> Vec<u8> {
        let back = (at + 4 - cie) as u32;
        let words = [20_u32, back].map(u32::to_le_bytes);
        let range = [address, 1].map(u64::to_le_bytes);
        [words.as_flattened(), range.as_flattened()].concat()
    }

    /// FDEs that have one CIE and the other by turns.
    fn n_found(n_padding: usize, n_fdes: u64) -> usize {
        let mut data = [cie(n_padding), cie(n_padding)].concat();
        let second = data.len() / 2;
        for address in 1..=n_fdes {
            let of = [0, second][address as usize % 2];
            let entry = fde(data.len(), of, address);
            data.extend(entry);
        }
        let place = Place {
            svma: 0,
            base: 0,
            text: 0,
            got: 0,
        };
        Cfi::build(SectionKind::EhFrame, data.into(), place, |_| true).n_fdes()
    }

    /// Check that CIEs as compilers write them are parsed as often as they are needed, and that larger ones are only as
    /// long as that stays in proportion to the section.
    #[test]
    fn cies_in_turns() {
        assert_eq!(n_found(11, 10_000), 10_000);
        // Then only the FDEs of the last one are found, every other one.
        let n = n_found(900, 10_000);
        assert!((5500..7000).contains(&n), "{n}");
        assert_eq!(n_found(MAX_CIE, 10), 0);
    }
}
