//! References to names in other units: entries to the strings that name them.
//!
//! Files that dwz has worked on, and code of link-time optimization, keep a function's
//! name in a unit of its own. Such units are found in further passes over `.debug_info`.

use std::collections::HashMap;

use gimli::{SectionId, UnitOffset};

use crate::budget::Shares;
use crate::elf::ElfFile;
use crate::error::DwarfError;
use crate::files::{DwarfFiles, section_of};
use crate::functions::{MAX_REFERENCES, Name, name_at};
use crate::scan::{TakenUnit, holding, scan};
use crate::tables::Tables;
use crate::text::Text;
use crate::unit::Unit;
use crate::unit_frames::UnitFrames;
use crate::unit_reader::UnitReader;

/// Names by the entries that they are taken from.
pub(crate) type Names = HashMap<Name, Text>;

/// Finds the names of all functions of `units` that are given by reference. One that cannot be
/// found is absent.
pub(crate) fn resolve(
    files: DwarfFiles<'_>,
    tables: &Tables<'_>,
    units: &[UnitFrames],
    shares: &Shares<'_>,
) -> Result<Names, DwarfError> {
    let mut names = Names::new();
    // What each reference has led to so far.
    let mut open: HashMap<Name, Name> = units
        .iter()
        .flat_map(|unit| unit.functions.frames())
        .filter(|frame| !matches!(frame.name, Name::Text(_)))
        .map(|frame| (frame.name.clone(), frame.name.clone()))
        .collect();
    let sup = match files.supplementary {
        Some(elf) if !open.is_empty() => Some((elf, Tables::open(elf, shares)?)),
        _ => None,
    };
    for _ in 0..MAX_REFERENCES {
        if open.is_empty() {
            break;
        }
        let (mut in_main, mut in_other) = (Vec::new(), Vec::new());
        for name in open.values() {
            match name {
                Name::Entry(offset) => in_main.push(*offset),
                Name::SupEntry(offset) => in_other.push(*offset),
                Name::Text(_) => {}
            }
        }
        let main = pass(files.main, tables, in_main, shares)?;
        let other = match &sup {
            Some((elf, tables)) => pass(elf, tables, in_other, shares)?,
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

/// Goes through `.debug_info` for the names of the entries at `wanted`.
fn pass(
    elf: &ElfFile,
    tables: &Tables<'_>,
    mut wanted: Vec<u64>,
    shares: &Shares<'_>,
) -> Result<HashMap<u64, Name>, DwarfError> {
    let mut found = HashMap::new();
    let reader = UnitReader::new((elf, section_of), tables, wanted.len())?;
    let section = section_of(elf, SectionId::DebugInfo);
    let Some(section) = section.filter(|_| !wanted.is_empty()) else {
        return Ok(found);
    };
    wanted.sort_unstable();
    wanted.dedup();
    let consume = |taken: TakenUnit<'_>| {
        // A name that cannot be read is absent, as is one whose unit cannot be read.
        let Ok(bytes) = taken.bytes else { return };
        let Ok(unit) = Unit::parse(&bytes, taken.offset, &reader, None) else {
            return;
        };
        let end = taken.offset.saturating_add(bytes.len() as u64);
        let from = wanted.partition_point(|o| *o < taken.offset);
        let inside = wanted.get(from..).unwrap_or_default();
        for offset in inside.iter().take_while(|o| **o < end) {
            let at = usize::try_from(offset - taken.offset).unwrap_or(usize::MAX);
            if let Ok(name) = name_at(&unit, UnitOffset(at))
                && shares.frames.take(name.heap_size())
            {
                found.insert(*offset, name);
            }
        }
    };
    scan(elf, section, shares.units, holding(&wanted), consume)?;
    Ok(found)
}
