//! The pass over `.debug_info` that finds the functions, and the pass over `.debug_line`.

use std::collections::HashMap;

use gimli::SectionId;

use crate::aranges::Claims;
use crate::budget::Shares;
use crate::elf::{ElfFile, SectionStream};
use crate::error::{DwarfError, Failures};
use crate::files::section_of;
use crate::functions;
use crate::lines::{self, UnitLines};
use crate::scan::{Choice, Selection, TakenUnit, fill, scan, unit_size};
use crate::tables::Tables;
use crate::unit::Unit;
use crate::unit_frames::{Skeleton, UnitFrames};
use crate::wanted::{Wanted, among};

/// Finds the functions at `addresses`, in the units that hold them.
pub(crate) fn read(
    elf: &ElfFile,
    tables: &Tables<'_>,
    addresses: &[Wanted],
    shares: Shares,
    failures: &mut Failures,
) -> Result<Vec<UnitFrames>, DwarfError> {
    let Some(section) = section_of(elf, SectionId::DebugInfo) else {
        return Ok(Vec::new());
    };
    let claims = Claims::read(elf, addresses);
    let (by_unit, unclaimed) = (&claims.units, &claims.unclaimed);
    let selection = Selection {
        end: match unclaimed.is_empty() {
            true => by_unit.keys().max().map_or(0, |last| last + 1),
            false => u64::MAX,
        },
        choose: Box::new(|offset, _| {
            if by_unit.contains_key(&offset) {
                Choice::Take
            } else if unclaimed.is_empty() || claims.listed.binary_search(&offset).is_ok() {
                Choice::Skip
            } else {
                Choice::Peek
            }
        }),
        peek: Box::new(|offset, bytes| {
            let unit = Unit::parse(bytes, offset, tables, None)?;
            Ok(!among(unclaimed, &unit.own_ranges()?).is_empty())
        }),
    };
    let mut units = Vec::new();
    let consume = |taken: TakenUnit<'_>| {
        let claimed = by_unit.get(&taken.offset);
        let bytes = taken.bytes;
        let read = bytes.and_then(|bytes| read_unit(&bytes, taken.offset, tables, &claims));
        match read {
            Ok(unit) => units.push(unit),
            Err(error) => failures.add(claimed.map_or(1, Vec::len), error),
        }
    };
    scan(elf, section, shares.units, selection, consume)?;
    Ok(units)
}

fn read_unit(
    bytes: &[u8],
    offset: u64,
    tables: &Tables<'_>,
    claims: &Claims,
) -> Result<UnitFrames, DwarfError> {
    let unit = Unit::parse(bytes, offset, tables, None)?;
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
        skeleton: Skeleton::new(&unit),
        line_program: unit.line_program,
        address_size: unit.header.address_size(),
        comp_dir: unit.comp_dir,
    })
}

/// Where several units hold an address, keeps it in the first that knows its function.
pub(crate) fn keep_best(units: &mut [UnitFrames]) {
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
pub(crate) fn read_lines(
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
    fill(stream, &mut bytes, size)?;
    Ok(bytes)
}
