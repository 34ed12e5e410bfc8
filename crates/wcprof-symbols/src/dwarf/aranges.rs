//! `.debug_aranges`: the units that say that they hold an address.

use std::collections::HashMap;

use gimli::{DebugAranges, LittleEndian};
use wcprof_types::Svma;

use super::DwarfError;
use super::functions::Wanted;
use crate::elf::ElfFile;

/// Expanded bytes that are read at most. Without the section, the root entry of each unit is
/// looked at, which takes longer.
const MAX_ARANGES: u64 = 64 << 20;

/// Which units to look into.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Addresses, sorted, by the offset of each unit that claims them.
    pub(super) units: HashMap<u64, Vec<Wanted>>,
    /// Offsets of the units that the section describes, sorted.
    pub(super) listed: Vec<u64>,
    /// Addresses that no unit claims, sorted.
    pub(super) unclaimed: Vec<Wanted>,
}

impl Claims {
    pub(super) fn read(elf: &ElfFile, addresses: &[Svma]) -> Result<Self, DwarfError> {
        let mut claims = Self::default();
        let mut claimed = vec![false; addresses.len()];
        let bytes = match elf.debug_section("debug_aranges") {
            // Without it all is slower, and as right.
            Some(section) => elf.read(section, MAX_ARANGES).unwrap_or_default(),
            None => Vec::new(),
        };
        let section = DebugAranges::new(&bytes, LittleEndian);
        let mut headers = section.headers();
        // What cannot be read is as if it were not there.
        while let Ok(Some(header)) = headers.next() {
            let unit = header.debug_info_offset().0 as u64;
            let mut entries = header.entries();
            let mut any = false;
            while let Some(entry) = entries.next().transpose() {
                // One that overflows is skipped; others end the iteration.
                let Ok(entry) = entry else { continue };
                let range = entry.range();
                if range.begin >= range.end {
                    continue;
                }
                any = true;
                let from = addresses.partition_point(|a| a.0 < range.begin);
                let to = addresses.partition_point(|a| a.0 < range.end);
                for idx in from..to {
                    if let (Some(claimed), Some(address)) =
                        (claimed.get_mut(idx), addresses.get(idx))
                    {
                        *claimed = true;
                        let wanted = claims.units.entry(unit).or_default();
                        wanted.push((address.0, idx));
                    }
                }
            }
            if any {
                claims.listed.push(unit);
            }
        }
        claims.listed.sort_unstable();
        claims.listed.dedup();
        for wanted in claims.units.values_mut() {
            wanted.sort_unstable();
            wanted.dedup();
        }
        claims.unclaimed = (0..)
            .zip(addresses)
            .filter(|(idx, _)| !claimed.get(*idx).copied().unwrap_or(false))
            .map(|(idx, address)| (address.0, idx))
            .collect();
        Ok(claims)
    }
}
