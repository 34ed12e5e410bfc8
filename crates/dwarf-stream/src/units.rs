//! The pass over `.debug_info` that finds the functions, and the pass over `.debug_line`.

use std::collections::HashMap;

use gimli::SectionId;

use crate::allowance::Allowance;
use crate::aranges::{Claims, MAX_UNITS};
use crate::budget::Shares;
use crate::elf::{ElfFile, SectionStream};
use crate::error::{DwarfError, Failures};
use crate::files::section_of;
use crate::functions;
use crate::lines::{self, UnitLines};
use crate::scan::{Choice, Selection, TakenUnit, fill, scan, unit_size};
use crate::tables::Tables;
use crate::text::Text;
use crate::unit::Unit;
use crate::unit_frames::{Skeleton, UnitFrames};
use crate::unit_reader::UnitReader;
use crate::wanted::{Positions, Wanted};

/// Finds the functions at `addresses`, in the units that hold them.
pub(crate) fn read(
    elf: &ElfFile,
    tables: &Tables<'_>,
    addresses: &[Wanted],
    shares: &Shares<'_>,
    failures: &mut Failures,
) -> Result<Vec<UnitFrames>, DwarfError> {
    let Some(section) = section_of(elf, SectionId::DebugInfo) else {
        return Ok(Vec::new());
    };
    let claims = Claims::read(elf, addresses, shares.units);
    let (by_unit, unclaimed) = (&claims.units, &claims.unclaimed);
    let reader = || UnitReader::new((elf, section_of), tables, addresses.len());
    // Roots are looked at on a thread of its own.
    let (peeker, reader) = (&reader()?, &reader()?);
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
            let unit = Unit::parse(bytes, offset, peeker, None)?;
            Ok(!unit.own_positions(unclaimed)?.is_empty())
        }),
    };
    let mut units = Vec::new();
    let mut open = OpenAddresses(vec![0; addresses.len()]);
    let consume = |taken: TakenUnit<'_>| {
        let claimed = by_unit.get(&taken.offset);
        let read = taken.bytes.and_then(|bytes| {
            let unit = Unit::parse(&bytes, taken.offset, reader, None)?;
            let wanted = match claimed {
                Some(claimed) => claimed.iter().copied().filter(|at| open.has(at)).collect(),
                None => open.among(unclaimed, unit.own_positions(unclaimed)?),
            };
            read_unit(unit, wanted, &shares.frames)
        });
        match read {
            Ok(Some(unit)) => {
                open.note(&unit);
                units.push(unit);
            }
            Ok(None) => {}
            Err(error) => failures.add(claimed.map_or(1, Vec::len), error),
        }
    };
    scan(elf, section, shares.units, selection, consume)?;
    peeker.note_limit(unclaimed.len(), failures);
    Ok(units)
}

/// Addresses whose function is looked for: by index, how many units without their function hold them.
struct OpenAddresses(Vec<u8>);

impl OpenAddresses {
    fn has(&self, (_, idx): &Wanted) -> bool {
        self.0.get(*idx).is_some_and(|n| *n < MAX_UNITS)
    }

    /// Those at `positions` of `wanted`.
    fn among(&self, wanted: &[Wanted], positions: Positions) -> Vec<Wanted> {
        let positions = positions.into_iter();
        let inside = positions.filter_map(|at| wanted.get(at).copied());
        inside.filter(|wanted| self.has(wanted)).collect()
    }

    /// Notes the addresses of one more unit. It is the last one of those whose function it has.
    fn note(&mut self, unit: &UnitFrames) {
        for (_, idx) in &unit.wanted {
            if let Some(n) = self.0.get_mut(*idx) {
                *n = match unit.functions.has(*idx) {
                    true => MAX_UNITS,
                    false => *n + 1,
                };
            }
        }
    }
}

/// The functions of a unit at `wanted`; `None` when there are no such addresses, or no room is left.
fn read_unit(
    unit: Unit<'_>,
    wanted: Vec<Wanted>,
    room: &Allowance,
) -> Result<Option<UnitFrames>, DwarfError> {
    let skeleton = Skeleton::new(&unit);
    let names = skeleton.iter().map(|skeleton| &skeleton.name);
    let heap = names
        .chain([&unit.comp_dir])
        .map(Text::heap_size)
        .sum::<u64>();
    let size = (size_of::<UnitFrames>() + size_of_val(wanted.as_slice())) as u64;
    if wanted.is_empty() || !room.take(size + heap) {
        return Ok(None);
    }
    Ok(Some(UnitFrames {
        functions: functions::find(&unit, &wanted, room)?,
        wanted,
        skeleton,
        line_program: unit.line_program,
        address_size: unit.header.address_size(),
        comp_dir: unit.comp_dir,
    }))
}

/// Where several units hold an address, keeps it in the first that knows its function.
pub(crate) fn keep_best(units: &mut [UnitFrames]) {
    let mut best: HashMap<usize, (usize, bool)> = HashMap::new();
    for (i, unit) in units.iter().enumerate() {
        for (_, idx) in &unit.wanted {
            let known = unit.functions.has(*idx);
            let entry = best.entry(*idx).or_insert((i, known));
            if known && !entry.1 {
                *entry = (i, true);
            }
        }
    }
    for (i, unit) in units.iter_mut().enumerate() {
        let is_best = |idx: &usize| best.get(idx).is_none_or(|(at, _)| *at == i);
        unit.wanted.retain(|(_, idx)| is_best(idx));
    }
}

/// Runs the line program of each unit; the result stands in the order of `units`.
pub(crate) fn read_lines(
    elf: &ElfFile,
    units: &[UnitFrames],
    shares: &Shares<'_>,
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
    let n_addresses = order.iter().filter_map(|(_, i)| units.get(*i));
    let n_addresses = n_addresses.map(|unit| unit.wanted.len()).sum();
    let steps = Allowance::steps(elf.expanded_size(section)?, n_addresses);
    let limits = (&steps, &shares.frames);
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
        match lines::run(&program.1, unit, limits) {
            Ok(found) => *lines = found,
            Err(error) => failures.add(unit.wanted.len(), error),
        }
    }
    Ok(lines)
}

fn read_program(
    stream: &mut SectionStream<'_>,
    offset: u64,
    shares: &Shares<'_>,
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
    let fits = |need| match need <= shares.units {
        true => Ok(()),
        false => Err(DwarfError::Memory {
            need,
            limit: shares.units,
        }),
    };
    fits(size)?;
    let mut bytes = begin.to_vec();
    fill(stream, &mut bytes, size)?;
    fits(lines::memory(&bytes))?;
    Ok(bytes)
}
