//! Addresses to functions and lines: the passes over a module's DWARF, in their order.

use std::panic::resume_unwind;
use std::sync::Arc;

use crate::budget::{Budget, Shares};
use crate::error::{DwarfError, Failures};
use crate::files::{DwarfFiles, SplitFile};
use crate::functions::{MAX_CHAIN, Name, RawFrame};
use crate::lines::UnitLines;
use crate::references::{self, Names};
use crate::tables::Tables;
use crate::text::{Strings, Text};
use crate::texts::Texts;
use crate::unit_frames::UnitFrames;
use crate::wanted::Wanted;
use crate::{split, units};

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
    let reservation = budget.reserve_share(files.expanded_size()?);
    let shares = reservation.shares();
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
    let (lines, strings) = read_lines_and_names(files, &units, &names, shares, &mut failures)?;
    let texts = Texts::read(files, &lines, strings, shares)?;
    let limit = shares.strings;
    failures.add(texts.strings.n_dropped, DwarfError::Strings { limit });
    // Some losses of a read that was cancelled look as if nothing were there.
    files.main.check()?;
    let mut frames = vec![Vec::new(); addresses.len()];
    for (unit, lines) in units.iter().zip(&lines) {
        for (idx, chain) in &unit.chains {
            if let Some(frames) = frames.get_mut(*idx) {
                *frames = finish(*idx, chain, lines, &names, &texts);
            }
        }
    }
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
    shares: Shares,
    failures: &mut Failures,
) -> Result<(Vec<UnitLines>, Strings), DwarfError> {
    let frames = units.iter().flat_map(|unit| unit.chains.values().flatten());
    let of_frames = frames.map(|frame| text_of(&frame.name, names));
    let wanted = of_frames.chain(units.iter().map(|unit| &unit.comp_dir));
    let wanted: Vec<&Text> = wanted.collect();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut strings = Strings::default();
            strings.read(files, wanted, shares.strings)?;
            Ok::<_, DwarfError>(strings)
        });
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

/// Puts together the frames of one address, innermost first.
fn finish(
    idx: usize,
    chain: &[RawFrame],
    lines: &UnitLines,
    names: &Names,
    texts: &Texts<'_>,
) -> Vec<DwarfFrame> {
    let frame = |name: Option<Arc<str>>, place: Option<(u64, u32)>| {
        let path = place.and_then(|(file, _)| lines.paths.get(&file));
        DwarfFrame {
            name,
            file: path.and_then(|path| texts.path(path)).map(Arc::from),
            line: place.map(|(_, line)| line).filter(|line| *line > 0),
        }
    };
    let mut place = lines.at.get(&idx).copied();
    if chain.is_empty() {
        // A line without a function: assembler.
        return vec![frame(None, place)];
    }
    let mut frames = Vec::with_capacity(chain.len());
    for raw in chain.iter().rev() {
        frames.push(frame(texts.get(text_of(&raw.name, names)), place));
        place = raw.call;
    }
    let n_frames = frames.len();
    if n_frames > MAX_CHAIN {
        // The last frame is the function itself and must stay.
        frames.drain(MAX_CHAIN - 1..n_frames - 1);
    }
    frames
}
