//! The relocations of a file that can lie anywhere in memory: what a dynamic linker adds its place to.

use object::LittleEndian as LE;
use object::elf::{DT_RELA, DT_RELASZ, Dyn64, DynamicTag, PT_DYNAMIC, R_X86_64_RELATIVE, Rela64};

use crate::elf::{ElfError, ElfFile, entries};

/// Largest tables, bytes: kubelet has 8 MB of relocations.
const MAX_DYNAMIC: u64 = 64 << 10;
const MAX_RELA: u64 = 128 << 20;

/// The relative relocations of a file, in its order.
pub(super) struct Relocations(Vec<u8>);

impl Relocations {
    /// Those that the dynamic section names; none for a file without one. What lies outside of the file is left out.
    pub(super) fn read(elf: &ElfFile) -> Result<Self, ElfError> {
        let Some(dynamic) = elf.segments.iter().find(|s| s.kind == PT_DYNAMIC.0) else {
            return Ok(Self(Vec::new()));
        };
        let what = format_args!("dynamic section");
        let dynamic = elf.read_range(what, dynamic.offset, dynamic.file_size, MAX_DYNAMIC)?;
        let of = |tag: DynamicTag| {
            let mut entries = entries::<Dyn64<LE>>(&dynamic).iter();
            entries
                .find(|e| e.d_tag.get(LE) == tag)
                .map(|e| e.d_val.get(LE))
        };
        let place = of(DT_RELA).zip(of(DT_RELASZ));
        let range = place.and_then(|(address, size)| {
            let mut loads = elf.segments.iter().filter(|s| s.is_load());
            loads.find_map(|s| {
                let into = address.checked_sub(s.address)?;
                let fits = into.checked_add(size)? <= s.file_size;
                fits.then_some((s.offset.checked_add(into)?, size))
            })
        });
        Ok(Self(match range {
            Some((offset, size)) => {
                elf.read_range(format_args!("relocations"), offset, size, MAX_RELA)?
            }
            None => Vec::new(),
        }))
    }

    /// Where each is, and the address that it puts there, as stated in the file.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = entries::<Rela64<LE>>(&self.0).iter();
        let relative = all.filter(|r| r.r_type(LE, false) == R_X86_64_RELATIVE);
        relative.map(|r| (r.r_offset.get(LE), r.r_addend.get(LE) as u64))
    }
}
