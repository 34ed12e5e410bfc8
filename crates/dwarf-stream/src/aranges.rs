//! `.debug_aranges`: the units that say that they hold an address.

use std::collections::HashMap;

use gimli::{DebugAranges, LittleEndian, Range};

use crate::elf::ElfFile;
use crate::wanted::{Open, Wanted, between};

/// Most units that are looked into for one address. Real files have one; linkers that leave ranges of
/// removed functions behind make it some more.
pub(crate) const MAX_UNITS: u8 = 16;

/// Which units to look into.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// Addresses, sorted, by the offset of each unit that claims them.
    pub(crate) units: HashMap<u64, Vec<Wanted>>,
    /// Offsets of the units that the section describes, sorted.
    pub(crate) listed: Vec<u64>,
    /// Addresses that no unit claims, sorted.
    pub(crate) unclaimed: Vec<Wanted>,
}

impl Claims {
    /// `addresses` are sorted. A section of more than `limit` bytes is not read: then the root entry of
    /// each unit is looked at, which takes longer.
    pub(crate) fn read(elf: &ElfFile, addresses: &[Wanted], limit: u64) -> Self {
        let mut claims = Self::default();
        let section = elf.debug_section("debug_aranges");
        // Without it all is slower, and as right.
        let bytes = section.and_then(|section| elf.read(section, limit).ok());
        let bytes = bytes.unwrap_or_default();
        let mut n_units = vec![0; addresses.len()];
        let mut open = Open::new(addresses.len());
        // Code that was removed begins at 0: it comes last, for addresses that have not enough units.
        for is_removed in [false, true] {
            for_each(&bytes, |unit, range| {
                if (range.begin == 0) != is_removed {
                    return;
                }
                if claims.listed.last() != Some(&unit) {
                    claims.listed.push(unit);
                }
                let inside = between(addresses, range.begin, range.end);
                let mut at = open.first_from(inside.start);
                while at < inside.end
                    && let (Some(wanted), Some(n)) = (addresses.get(at), n_units.get_mut(at))
                {
                    claims.units.entry(unit).or_default().push(*wanted);
                    *n += 1;
                    if *n == MAX_UNITS {
                        open.close(at);
                    }
                    at = open.first_from(at + 1);
                }
            });
        }
        claims.listed.sort_unstable();
        claims.listed.dedup();
        for wanted in claims.units.values_mut() {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let unclaimed = addresses.iter().zip(n_units).filter(|(_, n)| *n == 0);
        claims.unclaimed = unclaimed.map(|(wanted, _)| *wanted).collect();
        claims
    }
}

/// Calls `f` with each range that is not empty, and the unit that claims it. What cannot be read is as if it
/// were not there.
fn for_each(bytes: &[u8], mut f: impl FnMut(u64, Range)) {
    let mut headers = DebugAranges::new(bytes, LittleEndian).headers();
    while let Ok(Some(header)) = headers.next() {
        let unit = header.debug_info_offset().0 as u64;
        let mut entries = header.entries();
        while let Some(entry) = entries.next().transpose() {
            // One that overflows is skipped; others end the iteration.
            let range = entry.map(|entry| entry.range());
            if let Ok(range) = range
                && range.begin < range.end
            {
                f(unit, range);
            }
        }
    }
}
