//! The pass over `.debug_info` that finds the functions, and the pass over `.debug_line`.

use std::collections::HashMap;

use gimli::SectionId;
use wcprof_types::Svma;

use super::aranges::Claims;
use super::functions::{self, Chains, Wanted};
use super::lines::{self, UnitLines};
use super::scan::{Choice, Chooser, TakenUnit, scan, unit_size};
use super::split::Skeleton;
use super::text::Text;
use super::unit::{Tables, Unit};
use super::{DwarfError, Failures, Shares, section_of};
use crate::budget::Budget;
use crate::elf::{ElfError, ElfFile, SectionStream};

/// What is kept of a unit.
#[derive(Debug)]
pub(super) struct UnitFrames {
    /// Functions by address, outermost first; empty for an address of which only the unit is
    /// known.
    pub(super) chains: Chains,
    /// Addresses of `chains`, sorted.
    pub(super) wanted: Vec<Wanted>,
    /// Where its functions are, if not here.
    pub(super) skeleton: Option<Skeleton>,
    line_program: Option<u64>,
    address_size: u8,
    pub(super) comp_dir: Text,
}

/// Finds the functions at `addresses`, in the units that hold them.
pub(super) fn read(
    elf: &ElfFile,
    tables: &Tables<'_>,
    addresses: &[Svma],
    shares: Shares,
    failures: &mut Failures,
) -> Result<Vec<UnitFrames>, DwarfError> {
    let Some(section) = section_of(elf, SectionId::DebugInfo) else {
        return Ok(Vec::new());
    };
    let claims = Claims::read(elf, addresses)?;
    let in_flight = Budget::new(shares.units);
    let chooser = ByAddress {
        claims: &claims,
        tables,
    };
    let mut units = Vec::new();
    let consume = |taken: TakenUnit<'_>| {
        let claimed = claims.units.get(&taken.offset);
        let bytes = taken.bytes;
        let read = bytes.and_then(|bytes| read_unit(&bytes, taken.offset, tables, &claims));
        match read {
            Ok(unit) => units.push(unit),
            Err(error) => failures.add(claimed.map_or(1, Vec::len), error),
        }
    };
    scan(elf, section, &in_flight, chooser, consume)?;
    Ok(units)
}

fn read_unit(
    bytes: &[u8],
    offset: u64,
    tables: &Tables<'_>,
    claims: &Claims,
) -> Result<UnitFrames, DwarfError> {
    let unit = Unit::parse(bytes, offset, tables)?;
    let wanted = match claims.units.get(&offset) {
        Some(wanted) => wanted.clone(),
        None => among(&claims.unclaimed, &unit.own_ranges()?),
    };
    let mut chains = functions::find(&unit, &wanted)?;
    for (_, idx) in &wanted {
        chains.entry(*idx).or_default();
    }
    Ok(UnitFrames {
        chains,
        wanted,
        skeleton: Skeleton::of(&unit),
        line_program: unit.line_program,
        address_size: unit.header.address_size(),
        comp_dir: unit.comp_dir,
    })
}

/// Those of the sorted addresses that lie in one of the ranges, in order.
fn among(addresses: &[Wanted], ranges: &[(u64, u64)]) -> Vec<Wanted> {
    let mut found = Vec::new();
    for (begin, end) in ranges {
        let from = addresses.partition_point(|(address, _)| address < begin);
        let to = addresses.partition_point(|(address, _)| address < end);
        found.extend_from_slice(addresses.get(from..to).unwrap_or_default());
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Takes the units that hold an address.
struct ByAddress<'c> {
    claims: &'c Claims,
    tables: &'c Tables<'c>,
}

impl Chooser for ByAddress<'_> {
    fn choose(&mut self, offset: u64, _size: u64) -> Choice {
        if self.claims.units.contains_key(&offset) {
            Choice::Take
        } else if self.claims.unclaimed.is_empty()
            || self.claims.listed.binary_search(&offset).is_ok()
        {
            Choice::Skip
        } else {
            Choice::Peek
        }
    }

    fn peek(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, DwarfError> {
        let unit = Unit::parse(bytes, offset, self.tables)?;
        Ok(!among(&self.claims.unclaimed, &unit.own_ranges()?).is_empty())
    }

    fn end(&self) -> u64 {
        match self.claims.unclaimed.is_empty() {
            true => self.claims.units.keys().max().map_or(0, |last| last + 1),
            false => u64::MAX,
        }
    }
}

/// Where several units hold an address, keeps it in the first that knows its function.
pub(super) fn keep_best(units: &mut [UnitFrames]) {
    let mut best: HashMap<usize, (usize, bool)> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        for (idx, chain) in &unit.chains {
            let known = !chain.is_empty();
            let entry = best.entry(*idx).or_insert((i, known));
            if known && !entry.1 {
                *entry = (i, true);
            }
        }
    }
    for (i, unit) in units.iter_mut().enumerate() {
        let is_best = |idx: &usize| best.get(idx).is_none_or(|(at, _)| *at == i);
        unit.chains.retain(|idx, _| is_best(idx));
        unit.wanted.retain(|(_, idx)| is_best(idx));
    }
}

/// Runs the line program of each unit; the result stands in the order of `units`.
pub(super) fn read_lines(
    elf: &ElfFile,
    units: &[UnitFrames],
    shares: Shares,
    failures: &mut Failures,
) -> Result<Vec<UnitLines>, DwarfError> {
    let mut lines: Vec<UnitLines> = Vec::new();
    lines.resize_with(units.len(), UnitLines::default);
    let Some(section) = section_of(elf, SectionId::DebugLine) else {
        return Ok(lines);
    };
    let mut order: Vec<(u64, usize)> = (0..)
        .zip(units)
        .filter(|(_, unit)| !unit.wanted.is_empty())
        .filter_map(|(i, unit)| Some((unit.line_program?, i)))
        .collect();
    order.sort_unstable();
    let mut stream = elf.stream(section)?;
    let mut program = (u64::MAX, Vec::new());
    for (offset, i) in order {
        let (Some(unit), Some(lines)) = (units.get(i), lines.get_mut(i)) else {
            continue;
        };
        if program.0 != offset {
            match read_program(&mut stream, offset, shares) {
                Ok(bytes) => program = (offset, bytes),
                Err(error) => {
                    failures.add(unit.wanted.len(), error);
                    continue;
                }
            }
        }
        let calls = unit.chains.values().flatten().filter_map(|f| f.call);
        let files = calls.map(|(file, _)| file);
        let size = unit.address_size;
        match lines::run(&program.1, size, &unit.comp_dir, &unit.wanted, files) {
            Ok(found) => *lines = found,
            Err(error) => failures.add(unit.wanted.len(), error),
        }
    }
    Ok(lines)
}

fn read_program(
    stream: &mut SectionStream<'_>,
    offset: u64,
    shares: Shares,
) -> Result<Vec<u8>, DwarfError> {
    let out = DwarfError::Gimli(gimli::Error::OffsetOutOfBounds(offset));
    let Some(skip) = offset.checked_sub(stream.position()) else {
        // It begins inside the one before.
        return Err(out);
    };
    stream.skip(skip)?;
    let mut begin = [0; 12];
    let n = stream.read(&mut begin)?;
    let begin = begin.get(..n).unwrap_or_default();
    let left = stream.size() - offset.min(stream.size());
    let Some(size) = unit_size(begin).filter(|size| *size <= left && *size >= n as u64) else {
        return Err(out);
    };
    if size > shares.units {
        return Err(DwarfError::Memory {
            need: size,
            limit: shares.units,
        });
    }
    let mut bytes = begin.to_vec();
    bytes.resize(usize::try_from(size).unwrap_or(n), 0);
    let read = stream.read(bytes.get_mut(n..).unwrap_or_default())?;
    if read + n != bytes.len() {
        return Err(DwarfError::Elf(ElfError::Malformed(
            "section .debug_line".to_owned(),
        )));
    }
    Ok(bytes)
}
