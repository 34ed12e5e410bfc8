//! `.debug_aranges`: the units that say that they hold an address.

use std::collections::{HashMap, HashSet};

use gimli::{DebugAranges, LittleEndian};

use crate::elf::ElfFile;
use crate::wanted::{Wanted, between};

/// Largest section, bytes, expanded. Without the section, the root entry of each unit is looked at,
/// which takes longer.
const MAX_ARANGES: u64 = 64 << 20;

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
    /// `addresses` are sorted.
    pub(crate) fn read(elf: &ElfFile, addresses: &[Wanted]) -> Self {
        let mut claims = Self::default();
        let section = elf.debug_section("debug_aranges");
        // Without it all is slower, and as right.
        let bytes = section.and_then(|section| elf.read(section, MAX_ARANGES).ok());
        let bytes = bytes.unwrap_or_default();
        let mut headers = DebugAranges::new(&bytes, LittleEndian).headers();
        // What cannot be read is as if it were not there.
        while let Ok(Some(header)) = headers.next() {
            let unit = header.debug_info_offset().0 as u64;
            let mut entries = header.entries();
            while let Some(entry) = entries.next().transpose() {
                // One that overflows is skipped; others end the iteration.
                let Ok(entry) = entry else { continue };
                let range = entry.range();
                if range.begin < range.end {
                    claims.listed.push(unit);
                    let inside = between(addresses, range.begin, range.end);
                    if !inside.is_empty() {
                        claims.units.entry(unit).or_default().extend(inside);
                    }
                }
            }
        }
        claims.listed.sort_unstable();
        claims.listed.dedup();
        for wanted in claims.units.values_mut() {
            wanted.sort_unstable();
            wanted.dedup();
        }
        let claimed: HashSet<Wanted> = claims.units.values().flatten().copied().collect();
        let unclaimed = addresses.iter().filter(|wanted| !claimed.contains(wanted));
        claims.unclaimed = unclaimed.copied().collect();
        claims
    }
}
