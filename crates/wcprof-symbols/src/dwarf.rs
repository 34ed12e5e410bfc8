//! DWARF to the functions and lines at addresses, inline ones included.
//!
//! Sections are read and expanded once for all addresses of a module; units are parsed only where
//! an address lies. Before addr2line sees a unit, its nesting and its file table are checked
//! against limits, since it recurses along the one and copies the other.

use std::collections::HashSet;

use addr2line::Context;
use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId, UnitRef, UnitType};
use thiserror::Error;
use wcprof_types::Svma;

use crate::budget::Budget;
use crate::elf::{ElfError, ElfFile};

/// Nesting of entries in a unit.
const MAX_DEPTH: isize = 1000;
/// Bytes of all paths of a unit's file table.
const MAX_PATHS: u64 = 64 << 20;
/// Functions at one address; the innermost ones are kept.
const MAX_CHAIN: usize = 200;

/// Sections that names and lines need; others (`.debug_loclists`, ...) are not read.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Why a file's DWARF could not be used.
#[derive(Debug, Error)]
pub(crate) enum DwarfError {
    #[error("its debug information takes {need} bytes expanded, the limit is {limit}")]
    Memory { need: u64, limit: u64 },
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("malformed DWARF: {0}")]
    Gimli(#[from] gimli::Error),
    #[error("DWARF entries are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    #[error("the paths of a DWARF unit take more than {MAX_PATHS} bytes")]
    TooManyPaths,
    #[error("failed to read an address: {0}")]
    Address(gimli::Error),
}

/// One function at an address, as DWARF tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DwarfFrame {
    /// Linkage name, or the plain name where DWARF has no other.
    pub(crate) name: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// What DWARF says about a batch of addresses.
#[derive(Debug, Default)]
pub(crate) struct DwarfFrames {
    /// For each address: its functions, innermost first; empty when no unit covers it.
    pub(crate) frames: Vec<Vec<DwarfFrame>>,
    /// Addresses whose lookup failed, and the first failure.
    pub(crate) failed: Option<(usize, DwarfError)>,
}

/// Looks up `addresses`, which must be sorted.
pub(crate) fn lookup(
    elf: &ElfFile,
    addresses: &[Svma],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let need = expanded_size(elf)?;
    let limit = budget.limit();
    let _reservation = budget
        .reserve(need)
        .ok_or(DwarfError::Memory { need, limit })?;
    let sections = DwarfSections::load(|id| read(elf, id, limit))?;
    let dwarf = || sections.borrow(|bytes: &Vec<u8>| EndianSlice::new(bytes, LittleEndian));
    check_units(&dwarf(), addresses)?;
    let context = Context::from_dwarf(dwarf())?;
    let mut result = DwarfFrames::default();
    for address in addresses {
        let frames = chain(&context, *address).unwrap_or_else(|error| {
            let n = result.failed.take().map_or(0, |(n, _)| n);
            result.failed = Some((n + 1, DwarfError::Address(error)));
            Vec::new()
        });
        result.frames.push(frames);
    }
    Ok(result)
}

fn section_of(elf: &ElfFile, id: SectionId) -> Option<&crate::elf::Section> {
    elf.debug_section(id.name().strip_prefix('.')?)
}

fn read(elf: &ElfFile, id: SectionId, limit: u64) -> Result<Vec<u8>, ElfError> {
    match section_of(elf, id) {
        Some(section) if SECTIONS.contains(&id) => elf.read(section, limit),
        _ => Ok(Vec::new()),
    }
}

/// Memory that reading takes at its peak: everything expanded, and the largest stored section
/// that is being expanded.
fn expanded_size(elf: &ElfFile) -> Result<u64, ElfError> {
    let (mut sum, mut largest) = (0_u64, 0);
    for id in SECTIONS {
        if let Some(section) = section_of(elf, id) {
            let expanded = elf.expanded_size(section)?;
            sum = sum.saturating_add(expanded);
            if expanded != section.size {
                largest = largest.max(section.size);
            }
        }
    }
    Ok(sum.saturating_add(largest))
}

/// Functions at one address, innermost first.
fn chain(context: &Context<Slice<'_>>, address: Svma) -> Result<Vec<DwarfFrame>, gimli::Error> {
    if address.0 == u64::MAX {
        // addr2line adds 1 to the address, which would overflow.
        return Ok(Vec::new());
    }
    let mut frames = context.find_frames(address.0).skip_all_loads()?;
    let mut chain = Vec::new();
    while let Some(frame) = frames.next()? {
        let name = match &frame.function {
            Some(function) => Some(function.raw_name()?.into_owned()),
            None => None,
        };
        let location = frame.location.as_ref();
        let frame = DwarfFrame {
            name,
            file: location.and_then(|l| l.file).map(str::to_owned),
            line: location.and_then(|l| l.line),
        };
        // The last frame is the function itself and must stay.
        if chain.len() == MAX_CHAIN {
            chain.pop();
        }
        chain.push(frame);
    }
    Ok(chain)
}

/// Checks the units that `addresses` lie in, or may lie in, against the limits.
fn check_units(dwarf: &Dwarf<Slice<'_>>, addresses: &[Svma]) -> Result<(), DwarfError> {
    let any_in = |begin: u64, end: u64| {
        let i = addresses.partition_point(|a| a.0 < begin);
        addresses.get(i).is_some_and(|a| a.0 < end)
    };
    let mut by_aranges = HashSet::new();
    let mut headers = dwarf.debug_aranges.headers();
    while let Some(header) = headers.next()? {
        let mut entries = header.entries();
        while let Some(entry) = entries.next().transpose() {
            // An entry that overflows is skipped, others that fail end the iteration.
            if entry.is_ok_and(|e| any_in(e.range().begin, e.range().end)) {
                by_aranges.insert(header.debug_info_offset());
                break;
            }
        }
    }
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        if matches!(
            header.type_(),
            UnitType::Type { .. } | UnitType::SplitType { .. } | UnitType::Partial
        ) {
            continue;
        }
        let listed = header
            .debug_info_offset()
            .is_some_and(|offset| by_aranges.contains(&offset));
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let unit = unit.unit_ref(dwarf);
        if listed || may_hold(unit, any_in) {
            check_paths(unit)?;
            check_depth(unit)?;
        }
    }
    Ok(())
}

/// Whether a unit's own ranges hold an address, or tell nothing.
fn may_hold(unit: UnitRef<'_, Slice<'_>>, any_in: impl Fn(u64, u64) -> bool) -> bool {
    let Ok(mut ranges) = unit.unit_ranges() else {
        return true;
    };
    let mut has_ranges = false;
    while let Ok(Some(range)) = ranges.next() {
        if any_in(range.begin, range.end) {
            return true;
        }
        has_ranges |= range.begin < range.end;
    }
    !has_ranges
}

fn check_depth(unit: UnitRef<'_, Slice<'_>>) -> Result<(), DwarfError> {
    // A failure ends addr2line's reading at the same place.
    let Ok(mut entries) = unit.entries_raw(None) else {
        return Ok(());
    };
    while !entries.is_empty() {
        if entries.next_depth() > MAX_DEPTH {
            return Err(DwarfError::TooDeep);
        }
        match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => {
                if entries.skip_attributes(abbreviation.attributes()).is_err() {
                    break;
                }
            }
            Ok(None) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

fn check_paths(unit: UnitRef<'_, Slice<'_>>) -> Result<(), DwarfError> {
    let Some(program) = &unit.line_program else {
        return Ok(());
    };
    let header = program.header();
    let len = |value| unit.attr_string(value).map_or(0, |s| s.len() as u64);
    let comp_dir = unit.comp_dir.as_ref().map_or(0, |s| s.len() as u64);
    let mut total = 0_u64;
    for file in header.file_names() {
        let directory = file.directory(header).map_or(0, len);
        total = total.saturating_add(comp_dir + directory + len(file.path_name()));
        if total > MAX_PATHS {
            return Err(DwarfError::TooManyPaths);
        }
    }
    Ok(())
}
