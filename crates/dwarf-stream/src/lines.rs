//! Line programs to the source line at an address, and to the paths that are needed.

use std::collections::HashMap;

use gimli::{DebugLine, DebugLineOffset, LineProgramHeader, LittleEndian};

use crate::allowance::Allowance;
use crate::error::DwarfError;
use crate::path::Path;
use crate::text::{Slice, Text};
use crate::unit_frames::UnitFrames;
use crate::wanted::between;

/// Memory that a program takes while it is run: its bytes, and the tables of its header, whose entries grow
/// from some bytes to 112.
pub(crate) fn memory(bytes: &[u8]) -> u64 {
    const GROWTH: u64 = 32;
    // Length (4 or 12 bytes), version, and since DWARF 5 two sizes of a byte.
    let is_long = bytes.starts_with(&[0xff; 4]);
    let version = if is_long { 12 } else { 4 };
    let at = match bytes.get(version) {
        Some(..=4) => version + 2,
        _ => version + 4,
    };
    let field = bytes.get(at..).unwrap_or_default();
    let size = match is_long {
        true => field.first_chunk().map(|size| u64::from_le_bytes(*size)),
        false => field
            .first_chunk()
            .map(|size| u64::from(u32::from_le_bytes(*size))),
    };
    let size = size.unwrap_or(0).min(bytes.len() as u64);
    (bytes.len() as u64).saturating_add(size.saturating_mul(GROWTH))
}

/// What a line program says.
#[derive(Debug, Default)]
pub(crate) struct UnitLines {
    /// File (index) and line by the address's place in the caller's list.
    pub(crate) at: HashMap<usize, (u64, u32)>,
    /// Paths by file index: those of `at` and those asked for.
    pub(crate) paths: HashMap<u64, Path>,
}

/// Runs the program in `bytes`, which begin with its header, for the addresses of `unit` and the calls of
/// its functions. `steps` limits the work, `room` the memory for paths.
pub(crate) fn run(
    bytes: &[u8],
    unit: &UnitFrames,
    (steps, room): (&Allowance, &Allowance),
) -> Result<UnitLines, DwarfError> {
    let work = |n| match steps.take(n) {
        true => Ok(()),
        false => Err(DwarfError::Work { limit: steps.limit }),
    };
    work(bytes.len() as u64)?;
    let section = DebugLine::new(bytes, LittleEndian);
    let program = section.program(DebugLineOffset(0), unit.address_size, None, None)?;
    let wanted = unit.wanted.as_slice();
    let mut lines = UnitLines::default();
    // Address, file and line of the row before, in the sequence that is being read.
    let mut last: Option<(u64, u64, u32)> = None;
    let mut found: HashMap<usize, (u64, u32)> = HashMap::new();
    let mut start = None;
    // A sequence that begins at 0 belongs to code that was not linked, or jumps from there to code
    // that was: GCC does not always end it in between.
    let mut unlinked: HashMap<usize, (u64, u32)> = HashMap::new();
    let mut rows = program.clone().rows();
    while let Some((_, row)) = rows.next_row()? {
        let address = row.address();
        if let Some((begin, file, line)) = last {
            let inside = wanted
                .get(between(wanted, begin, address))
                .unwrap_or_default();
            work(inside.len() as u64)?;
            for (_, idx) in inside {
                found.entry(*idx).or_insert((file, line));
            }
        }
        if row.end_sequence() {
            let at = match start {
                Some(1..) => &mut lines.at,
                _ => &mut unlinked,
            };
            for (idx, place) in found.drain() {
                at.entry(idx).or_insert(place);
            }
            (last, start) = (None, None);
        } else {
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
            start = start.or(Some(address));
            last = Some((address, row.file_index(), line.unwrap_or(0)));
        }
    }
    for (idx, place) in unlinked {
        lines.at.entry(idx).or_insert(place);
    }
    lines.paths = paths(program.header(), unit, &lines.at, room);
    Ok(lines)
}

/// The paths of the files that lines and calls are in, by index.
fn paths(
    header: &LineProgramHeader<Slice<'_>>,
    unit: &UnitFrames,
    at: &HashMap<usize, (u64, u32)>,
    room: &Allowance,
) -> HashMap<u64, Path> {
    let path = |index: u64| {
        let file = header.file(index)?;
        // Directory 0 is the compilation directory itself.
        let directory = match file.directory_index() {
            0 => Text::None,
            _ => file
                .directory(header)
                .as_ref()
                .map_or(Text::None, Text::new),
        };
        Some(Path {
            comp_dir: unit.comp_dir.clone(),
            directory,
            file: Text::new(&file.path_name()),
        })
    };
    let calls = unit.functions.frames().filter_map(|frame| frame.call);
    let places = calls.chain(at.values().copied());
    let mut used: Vec<u64> = places.map(|(file, _)| file).collect();
    used.sort_unstable();
    used.dedup();
    let paths = used
        .into_iter()
        .filter_map(|index| Some((index, path(index)?)));
    paths.filter(|(_, path)| room.take(path.size())).collect()
}
