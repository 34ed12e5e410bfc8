//! Names that lie in other units than the function: entries to the strings that name them.
//!
//! Files that dwz has worked on, and code that was optimized when it was linked, keep a function's
//! name in a unit of its own. Such units are found in further passes over `.debug_info`.

use std::collections::HashMap;

use gimli::{SectionId, UnitOffset};

use super::functions::{MAX_REFERENCES, Name, name_at};
use super::scan::{Choice, Chooser, TakenUnit, scan};
use super::text::Text;
use super::unit::{Tables, Unit};
use super::units::UnitFrames;
use super::{DwarfError, DwarfFiles, Names, Shares, open_tables, section_of};
use crate::budget::Budget;
use crate::elf::ElfFile;

/// Finds the names of all functions of `units` that are given by reference. One that cannot be
/// found is absent.
pub(super) fn resolve(
    files: DwarfFiles<'_>,
    tables: &Tables<'_>,
    units: &[UnitFrames],
    shares: Shares,
) -> Result<Names, DwarfError> {
    let mut names = Names::new();
    // What each reference has led to so far.
    let mut open: HashMap<Name, Name> = units
        .iter()
        .flat_map(|unit| unit.chains.values().flatten())
        .filter(|frame| !matches!(frame.name, Name::Text(_)))
        .map(|frame| (frame.name.clone(), frame.name.clone()))
        .collect();
    let sup = match files.supplementary {
        Some(elf) if !open.is_empty() => Some((elf, open_tables(elf, shares)?)),
        _ => None,
    };
    for _ in 0..MAX_REFERENCES {
        if open.is_empty() {
            break;
        }
        let main = |name: &Name| match name {
            Name::Entry(offset) => Some(*offset),
            _ => None,
        };
        let other = |name: &Name| match name {
            Name::SupEntry(offset) => Some(*offset),
            _ => None,
        };
        let main = pass(files.main, tables, offsets(&open, main), shares)?;
        let other = match &sup {
            Some((elf, tables)) => pass(elf, tables, offsets(&open, other), shares)?,
            None => HashMap::new(),
        };
        open.retain(|from, at| {
            let next = match at {
                Name::Entry(offset) => main.get(offset).cloned(),
                Name::SupEntry(offset) => other.get(offset).cloned().map(in_supplementary),
                Name::Text(_) => None,
            };
            match next {
                Some(Name::Text(text)) => {
                    names.insert(from.clone(), text);
                    false
                }
                Some(next) => {
                    *at = next;
                    true
                }
                None => false,
            }
        });
    }
    Ok(names)
}

/// What an entry of the supplementary file refers to lies in that file too.
fn in_supplementary(name: Name) -> Name {
    match name {
        Name::Entry(offset) => Name::SupEntry(offset),
        Name::Text(Text::Str(offset)) => Name::Text(Text::SupStr(offset)),
        other => other,
    }
}

fn offsets(open: &HashMap<Name, Name>, of: impl Fn(&Name) -> Option<u64>) -> Vec<u64> {
    let mut offsets: Vec<u64> = open.values().filter_map(of).collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

/// Goes through `.debug_info` for the entries at `wanted`, which is sorted.
fn pass(
    elf: &ElfFile,
    tables: &Tables<'_>,
    wanted: Vec<u64>,
    shares: Shares,
) -> Result<HashMap<u64, Name>, DwarfError> {
    let mut found = HashMap::new();
    let section = section_of(elf, SectionId::DebugInfo);
    let Some(section) = section.filter(|_| !wanted.is_empty()) else {
        return Ok(found);
    };
    let in_flight = Budget::new(shares.units);
    let consume = |taken: TakenUnit<'_>| {
        // A name that cannot be read is absent, as is one whose unit cannot be read.
        let Ok(bytes) = taken.bytes else { return };
        let Ok(unit) = Unit::parse(&bytes, taken.offset, tables) else {
            return;
        };
        let end = taken.offset.saturating_add(bytes.len() as u64);
        let from = wanted.partition_point(|o| *o < taken.offset);
        let inside = wanted.get(from..).unwrap_or_default();
        for offset in inside.iter().take_while(|o| **o < end) {
            let at = usize::try_from(offset - taken.offset).unwrap_or(usize::MAX);
            if let Ok(name) = name_at(&unit, UnitOffset(at)) {
                found.insert(*offset, name);
            }
        }
    };
    scan(elf, section, &in_flight, ByOffset(&wanted), consume)?;
    Ok(found)
}

/// Takes the units that hold an offset.
struct ByOffset<'w>(&'w [u64]);

impl Chooser for ByOffset<'_> {
    fn choose(&mut self, offset: u64, size: u64) -> Choice {
        let next = self.0.get(self.0.partition_point(|o| *o < offset));
        match next {
            Some(next) if *next < offset.saturating_add(size) => Choice::Take,
            _ => Choice::Skip,
        }
    }

    fn peek(&mut self, _offset: u64, _bytes: &[u8]) -> Result<bool, DwarfError> {
        Ok(false)
    }

    fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last + 1)
    }
}
