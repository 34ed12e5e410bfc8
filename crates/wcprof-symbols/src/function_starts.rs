//! Call frame information to the bounds of functions.

use dwarf_stream::elf::{ElfError, ElfFile};
use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use wcprof_types::Svma;

/// `.eh_frame` read at most, bytes.
const MAX_EH_FRAME: u64 = 256 << 20;

/// Where the functions of a file begin and end, by its FDEs (`.eh_frame`). Also holds for stripped
/// files and for assembler functions with CFI.
#[derive(Debug, Default)]
pub struct FunctionStarts {
    /// Start and end (exclusive), sorted.
    ranges: Vec<(u64, u64)>,
}

impl FunctionStarts {
    /// Reads all FDEs. Those behind a malformed entry are left out, since it is unknown where they
    /// begin. Empty for a file without `.eh_frame`.
    pub fn read(elf: &ElfFile) -> Result<Self, ElfError> {
        let Some(section) = elf.section(".eh_frame") else {
            return Ok(Self::default());
        };
        let bytes = elf.read(section, MAX_EH_FRAME)?;
        let mut bases = BaseAddresses::default().set_eh_frame(section.address);
        if let Some(text) = elf.section(".text") {
            bases = bases.set_text(text.address);
        }
        let eh_frame = EhFrame::new(&bytes, LittleEndian);
        let mut ranges = fdes(&eh_frame, &bases);
        ranges.sort_unstable();
        Ok(Self { ranges })
    }

    /// Start and end (exclusive) of the function that `address` lies in, by the FDE that covers it.
    pub fn function_at(&self, address: Svma) -> Option<(Svma, Svma)> {
        let i = self
            .ranges
            .partition_point(|(start, _)| *start <= address.0);
        let (start, end) = *self.ranges.get(i.checked_sub(1)?)?;
        (address.0 < end).then_some((Svma(start), Svma(end)))
    }

    /// First address after the function that ends last at or before an address that lies in none.
    pub(crate) fn end_before(&self, address: Svma) -> Option<Svma> {
        let i = self
            .ranges
            .partition_point(|(start, _)| *start <= address.0);
        let (_, end) = *self.ranges.get(i.checked_sub(1)?)?;
        (end <= address.0).then_some(Svma(end))
    }
}

fn fdes(
    eh_frame: &EhFrame<EndianSlice<'_, LittleEndian>>,
    bases: &BaseAddresses,
) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut entries = eh_frame.entries(bases);
    // Most FDEs share the CIE of the one before.
    let mut last_cie = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|section, bases, offset| match &last_cie {
            Some((at, cie)) if *at == offset => Ok(Clone::clone(cie)),
            _ => {
                let cie = section.cie_from_offset(bases, offset)?;
                last_cie = Some((offset, cie.clone()));
                Ok(cie)
            }
        });
        if let Ok(fde) = fde
            && let Some(end) = fde.initial_address().checked_add(fde.len())
            && fde.initial_address() < end
        {
            ranges.push((fde.initial_address(), end));
        }
    }
    ranges
}
