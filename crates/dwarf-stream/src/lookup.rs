//! Addresses to functions and lines: the passes over a module's DWARF, in their order.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::Builder;

use crate::allowance::Allowance;
use crate::budget::{Budget, Shares};
use crate::error::{DwarfError, Failures};
use crate::files::{DwarfFiles, SplitFile};
use crate::functions::{MAX_CHAIN, Name};
use crate::lines::UnitLines;
use crate::path::Path;
use crate::references::{self, Names};
use crate::tables::Tables;
use crate::text::{Strings, Text};
use crate::unit_frames::UnitFrames;
use crate::wanted::Wanted;
use crate::{path, split, units};

/// Assumed size of what is found at an address, bytes.
const ADDRESS_SIZE: u64 = 2048;

/// One function at an address, as DWARF has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DwarfFrame {
    /// Linkage name, or the plain name where DWARF has no other.
    pub name: Option<Arc<str>>,
    /// Path of the source file.
    pub file: Option<Arc<str>>,
    /// Line in it, from 1.
    pub line: Option<u32>,
}

/// What DWARF says about some addresses.
#[derive(Debug, Default)]
pub struct DwarfFrames {
    /// For each address: its functions, innermost first; empty when no unit covers it.
    pub frames: Vec<Vec<DwarfFrame>>,
    /// Number of addresses whose lookup failed or is incomplete, and the first failure.
    pub failed: Option<(usize, DwarfError)>,
    /// Files with split DWARF that were read: packages, and the first of single units.
    pub split: Vec<SplitFile>,
}

/// Looks up `addresses`, as stated in the file; they must be sorted.
///
/// # Errors
/// When the file cannot be read at all, or its reads were cancelled. What is wrong with single units is in [`DwarfFrames::failed`].
pub fn look_up(
    files: DwarfFiles<'_>,
    addresses: &[u64],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let of_addresses = ADDRESS_SIZE.saturating_mul(addresses.len() as u64);
    let size = files.expanded_size()?.saturating_add(of_addresses);
    let reservation = budget.reserve_share(size);
    let shares = &reservation.shares();
    let wanted: Vec<Wanted> = addresses.iter().copied().zip(0..).collect();
    let mut failures = Failures::default();
    let (units, names, split) = {
        let tables = Tables::open(files.main, shares)?;
        let mut units = units::read(files.main, &tables, &wanted, shares, &mut failures)?;
        let split = split::read(files, &tables, &mut units, shares, &mut failures)?;
        units::keep_best(&mut units);
        let names = references::resolve(files, &tables, &units, shares)?;
        (units, names, split)
    };
    let (lines, mut strings) = read_lines_and_names(files, &units, &names, shares, &mut failures)?;
    let paths = lines.iter().flat_map(|lines| lines.paths.values());
    strings.read(files, paths.flat_map(Path::parts), &shares.strings)?;
    // Some losses of a read that was cancelled look as if nothing were there.
    files.main.check()?;
    let mut frames = vec![Vec::new(); addresses.len()];
    for (unit, lines) in units.iter().zip(lines) {
        let finish = Finish {
            unit,
            names: &names,
            strings: &strings,
            room: &shares.frames,
            at: lines.at,
            paths: path::as_text(lines.paths, &strings, &shares.strings),
        };
        for (_, idx) in &unit.wanted {
            if let Some(frames) = frames.get_mut(*idx) {
                *frames = finish.frames(*idx);
            }
        }
    }
    let (of_strings, of_frames) = (&shares.strings, &shares.frames);
    let limit = of_strings.limit;
    failures.add(of_strings.n_refused(), DwarfError::Strings { limit });
    let limit = of_frames.limit;
    failures.add(of_frames.n_refused(), DwarfError::Frames { limit });
    Ok(DwarfFrames {
        frames,
        failed: failures.0,
        split,
    })
}

/// Runs the line programs of `units`, and reads the names of their functions at the same time.
fn read_lines_and_names(
    files: DwarfFiles<'_>,
    units: &[UnitFrames],
    names: &Names,
    shares: &Shares<'_>,
    failures: &mut Failures,
) -> Result<(Vec<UnitLines>, Strings), DwarfError> {
    let frames = units.iter().flat_map(|unit| unit.functions.frames());
    let of_frames = frames.map(|frame| text_of(&frame.name, names));
    let wanted = of_frames.chain(units.iter().map(|unit| &unit.comp_dir));
    let wanted: Vec<&Text> = wanted.collect();
    std::thread::scope(|scope| {
        let reader = Builder::new().spawn_scoped(scope, || {
            let mut strings = Strings::default();
            strings.read(files, wanted, &shares.strings)?;
            Ok::<_, DwarfError>(strings)
        });
        let reader = reader.map_err(DwarfError::Thread)?;
        let lines = units::read_lines(files.main, units, shares, failures);
        let strings = reader.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((lines?, strings?))
    })
}

fn text_of<'n>(name: &'n Name, names: &'n Names) -> &'n Text {
    match name {
        Name::Text(text) => text,
        name => names.get(name).unwrap_or(&Text::None),
    }
}

/// What the frames of a unit's addresses are put together from.
struct Finish<'l> {
    unit: &'l UnitFrames,
    names: &'l Names,
    strings: &'l Strings,
    room: &'l Allowance,
    /// File and line by the address's index.
    at: HashMap<usize, (u64, u32)>,
    paths: HashMap<u64, Arc<str>>,
}

impl Finish<'_> {
    /// The frames of one address, innermost first.
    fn frames(&self, idx: usize) -> Vec<DwarfFrame> {
        let functions = self.unit.functions.at(idx);
        let n_functions = functions.count();
        let n_frames = n_functions.clamp(1, MAX_CHAIN);
        if !self.room.take((n_frames * size_of::<DwarfFrame>()) as u64) {
            return Vec::new();
        }
        let mut place = self.at.get(&idx).copied();
        if n_functions == 0 {
            // A line without a function: assembler.
            return vec![self.frame(None, place)];
        }
        let mut frames = Vec::with_capacity(n_frames);
        for (i, function) in self.unit.functions.at(idx).enumerate() {
            // The last one is the function itself and must stay.
            if i < MAX_CHAIN - 1 || i == n_functions - 1 {
                let name = self.strings.get(text_of(&function.name, self.names));
                frames.push(self.frame(name, place));
            }
            place = function.call;
        }
        frames
    }

    fn frame(&self, name: Option<Arc<str>>, place: Option<(u64, u32)>) -> DwarfFrame {
        DwarfFrame {
            name,
            file: place.and_then(|(file, _)| self.paths.get(&file).cloned()),
            line: place.map(|(_, line)| line).filter(|line| *line > 0),
        }
    }
}
