//! DWARF to the functions and lines at addresses, inline ones included.
//!
//! Debug files are large, and stored compressed: a copy of ceph-osd's takes 650 MB. So no section
//! is ever held whole. `.debug_info` is expanded from begin to end once; `.debug_aranges` tells
//! which units hold an address, and only those are read, one after the other, and dropped. What
//! remains of them is small: for each address its functions, as places of strings and source
//! files. Then `.debug_line` and `.debug_str` are gone through for just those.
//!
//! A file ten times as large takes ten times as long, and as much memory. What would need more,
//! such as a single unit larger than the budget, is left out and reported.

mod aranges;
mod functions;
mod lines;
mod references;
mod scan;
mod split;
mod table;
mod text;
mod unit;
mod units;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use gimli::SectionId;
use thiserror::Error;
use wcprof_types::Svma;

use crate::budget::Budget;
use crate::elf::{ElfError, ElfFile, Section};
use functions::{Name, RawFrame};
use lines::{Path, UnitLines};
use table::Table;
use text::{Strings, Text};
use unit::Tables;
use units::UnitFrames;

/// What is taken for the size of split DWARF before its files are found, bytes.
const SPLIT_SIZE: u64 = 1 << 30;
/// Functions at one address; the innermost ones are kept.
const MAX_CHAIN: usize = 200;

/// Why a file's DWARF, or a part of it, could not be used.
#[derive(Debug, Error)]
pub(crate) enum DwarfError {
    #[error(
        "a unit of its debug information takes {need} bytes, and {limit} of the memory limit are \
         for units"
    )]
    Memory { need: u64, limit: u64 },
    #[error("its names and paths take more than the {limit} bytes of the memory limit for them")]
    Strings { limit: u64 },
    #[error("failed to expand section {section} to a file of {size} bytes: {source}")]
    Spill {
        section: String,
        size: u64,
        source: std::io::Error,
    },
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
    #[error("the unit at {0:#x} of .debug_info does not end inside the section")]
    UnitLength(u64),
    #[error("`{0}` (split DWARF) was not found")]
    SplitMissing(String),
    #[error("`{path}` (split DWARF): {reason}")]
    SplitUnusable { path: String, reason: String },
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error("malformed DWARF: {0}")]
    Gimli(#[from] gimli::Error),
}

/// One function at an address, as DWARF tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DwarfFrame {
    /// Linkage name, or the plain name where DWARF has no other.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) file: Option<Arc<str>>,
    pub(crate) line: Option<u32>,
}

/// What DWARF says about a batch of addresses.
#[derive(Debug, Default)]
pub(crate) struct DwarfFrames {
    /// For each address: its functions, innermost first; empty when no unit covers it.
    pub(crate) frames: Vec<Vec<DwarfFrame>>,
    /// Addresses whose lookup failed, and the first failure.
    pub(crate) failed: Option<(usize, DwarfError)>,
    /// Files with split DWARF that were read: packages, and the first of single units.
    pub(crate) split: Vec<SplitFile>,
}

/// A file with units that were split off.
#[derive(Debug)]
pub(crate) struct SplitFile {
    pub(crate) elf: ElfFile,
    pub(crate) path: PathBuf,
    /// It has many units and an index of them (`.dwp`).
    pub(crate) is_package: bool,
}

/// Finds the files that units were split off to.
pub(crate) trait SplitFiles: std::fmt::Debug + Sync {
    /// Packages that may have units of the module, best first, and why one cannot be used.
    fn packages(&self) -> Vec<Result<SplitFile, DwarfError>>;

    /// The file that a skeleton names; `comp_dir` is where it was compiled.
    fn object(&self, comp_dir: &str, name: &str) -> Result<SplitFile, DwarfError>;
}

/// The files that hold a module's DWARF.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DwarfFiles<'a> {
    pub(crate) main: &'a ElfFile,
    /// What `.gnu_debugaltlink` names: strings and entries shared by several files (dwz).
    pub(crate) supplementary: Option<&'a ElfFile>,
    /// How to find split DWARF.
    pub(crate) split: Option<&'a dyn SplitFiles>,
}

/// How much memory each part of a lookup may take, bytes.
#[derive(Copy, Clone, Debug)]
struct Shares {
    /// The sections that are accessed at random, together.
    tables: u64,
    /// Units and line programs in flight.
    units: u64,
    strings: u64,
}

impl Shares {
    /// Divides what a lookup reserved.
    fn of(reserved: u64) -> Self {
        Self {
            tables: reserved / 8 * 3,
            units: reserved / 2,
            strings: reserved / 8,
        }
    }
}

/// Failures on the way, counted by address.
#[derive(Debug, Default)]
struct Failures {
    n: usize,
    first: Option<DwarfError>,
}

impl Failures {
    fn add(&mut self, n: usize, error: DwarfError) {
        if n > 0 {
            self.n += n;
            self.first.get_or_insert(error);
        }
    }
}

/// Looks up `addresses`, which must be sorted.
pub(crate) fn lookup(
    files: DwarfFiles<'_>,
    addresses: &[Svma],
    budget: &Budget,
) -> Result<DwarfFrames, DwarfError> {
    let reservation = budget.reserve_share(expanded_size(files)?);
    let shares = Shares::of(reservation.bytes());
    let mut failures = Failures::default();
    let (units, names, split) = {
        let tables = open_tables(files.main, shares)?;
        let mut units = units::read(files.main, &tables, addresses, shares, &mut failures)?;
        let split = split::read(files, &tables, &mut units, shares, &mut failures)?;
        units::keep_best(&mut units);
        let names = references::resolve(files, &tables, &units, shares)?;
        (units, names, split)
    };
    let (lines, strings) = read_lines_and_names(files, &units, &names, shares, &mut failures)?;
    let texts = Texts::read(files, &lines, strings, shares)?;
    let limit = shares.strings;
    failures.add(texts.strings.n_dropped, DwarfError::Strings { limit });
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
        failed: failures.first.map(|error| (failures.n, error)),
        split,
    })
}

fn section_of(elf: &ElfFile, id: SectionId) -> Option<&Section> {
    elf.debug_section(id.name().strip_prefix('.')?)
}

/// Bytes of all sections that a lookup may read, expanded.
pub(crate) fn expanded_size(files: DwarfFiles<'_>) -> Result<u64, DwarfError> {
    const SECTIONS: [SectionId; 9] = [
        SectionId::DebugAbbrev,
        SectionId::DebugAddr,
        SectionId::DebugInfo,
        SectionId::DebugLine,
        SectionId::DebugLineStr,
        SectionId::DebugRanges,
        SectionId::DebugRngLists,
        SectionId::DebugStr,
        SectionId::DebugStrOffsets,
    ];
    let mut sum = 0_u64;
    for elf in [Some(files.main), files.supplementary]
        .into_iter()
        .flatten()
    {
        for id in SECTIONS {
            if let Some(section) = section_of(elf, id) {
                sum = sum.saturating_add(elf.expanded_size(section)?);
            }
        }
    }
    if files.split.is_some() && section_of(files.main, SectionId::DebugAddr).is_some() {
        sum = sum.saturating_add(SPLIT_SIZE);
    }
    Ok(sum)
}

fn open_tables(elf: &ElfFile, shares: Shares) -> Result<Tables<'_>, DwarfError> {
    let mut room = shares.tables;
    let mut open = |id| Table::open(elf, section_of(elf, id), &mut room);
    Ok(Tables {
        abbrev: open(SectionId::DebugAbbrev)?,
        addr: Arc::new(open(SectionId::DebugAddr)?),
        ranges: Arc::new(open(SectionId::DebugRanges)?),
        rnglists: open(SectionId::DebugRngLists)?,
        str_offsets: open(SectionId::DebugStrOffsets)?,
    })
}

/// Names by the entries that tell them.
type Names = HashMap<Name, Text>;

/// Runs the line programs of `units`, and reads the names of their functions beside it.
fn read_lines_and_names(
    files: DwarfFiles<'_>,
    units: &[UnitFrames],
    names: &Names,
    shares: Shares,
    failures: &mut Failures,
) -> Result<(Vec<UnitLines>, TextStrings), DwarfError> {
    let mut wanted = TextOffsets::default();
    for unit in units {
        wanted.add(&unit.comp_dir);
        for frame in unit.chains.values().flatten() {
            wanted.add(text_of(&frame.name, names));
        }
    }
    std::thread::scope(|scope| {
        let strings = scope.spawn(|| wanted.read(files, shares));
        let lines = units::read_lines(files.main, units, shares, failures);
        let strings = match strings.join() {
            Ok(strings) => strings,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((lines?, strings?))
    })
}

fn text_of<'n>(name: &'n Name, names: &'n Names) -> &'n Text {
    match name {
        Name::Text(text) => text,
        name => names.get(name).unwrap_or(&Text::None),
    }
}

/// Offsets of strings by section.
#[derive(Debug, Default)]
struct TextOffsets {
    main: Vec<u64>,
    supplementary: Vec<u64>,
}

/// Strings by section and offset.
#[derive(Debug, Default)]
struct TextStrings {
    main: Strings,
    supplementary: Strings,
    /// Strings that no longer fit into their share of the memory.
    n_dropped: usize,
}

impl TextOffsets {
    fn add(&mut self, text: &Text) {
        match text {
            Text::Str(offset) => self.main.push(*offset),
            Text::SupStr(offset) => self.supplementary.push(*offset),
            Text::None | Text::Inline(_) | Text::LineStr(_) => {}
        }
    }

    fn read(self, files: DwarfFiles<'_>, shares: Shares) -> Result<TextStrings, DwarfError> {
        let pick = |elf: Option<&ElfFile>, offsets: Vec<u64>| match elf {
            Some(elf) if !offsets.is_empty() => {
                let section = section_of(elf, SectionId::DebugStr);
                text::pick(elf, section, offsets, shares.strings)
            }
            _ => Ok((Strings::new(), 0)),
        };
        let (main, n_main) = pick(Some(files.main), self.main)?;
        let (supplementary, n_supplementary) = pick(files.supplementary, self.supplementary)?;
        Ok(TextStrings {
            main,
            supplementary,
            n_dropped: n_main + n_supplementary,
        })
    }
}

/// All strings that the frames need.
#[derive(Debug)]
struct Texts<'a> {
    strings: TextStrings,
    line_str: Table<'a>,
}

impl<'a> Texts<'a> {
    /// Adds what the paths need to the strings that are there.
    fn read(
        files: DwarfFiles<'a>,
        lines: &[UnitLines],
        mut strings: TextStrings,
        shares: Shares,
    ) -> Result<Self, DwarfError> {
        let mut wanted = TextOffsets::default();
        for path in lines.iter().flat_map(|l| l.paths.values()) {
            wanted.add(&path.directory);
            wanted.add(&path.file);
        }
        let known = |strings: &Strings, offset: &u64| strings.contains_key(offset);
        wanted.main.retain(|o| !known(&strings.main, o));
        wanted
            .supplementary
            .retain(|o| !known(&strings.supplementary, o));
        let more = wanted.read(files, shares)?;
        strings.main.extend(more.main);
        strings.supplementary.extend(more.supplementary);
        strings.n_dropped += more.n_dropped;
        let section = section_of(files.main, SectionId::DebugLineStr);
        let mut room = shares.tables;
        Ok(Self {
            strings,
            line_str: Table::open(files.main, section, &mut room)?,
        })
    }

    fn get(&self, text: &Text) -> Option<std::borrow::Cow<'_, str>> {
        match text {
            Text::None => None,
            Text::Inline(bytes) => Some(String::from_utf8_lossy(bytes).into_owned().into()),
            Text::Str(offset) => self.strings.main.get(offset).map(|s| s.as_str().into()),
            Text::SupStr(offset) => {
                let text = self.strings.supplementary.get(offset);
                text.map(|s| s.as_str().into())
            }
            Text::LineStr(offset) => {
                let part = self.line_str.part(*offset, text::MAX_TEXT as u64).ok()?;
                let end = part.iter().position(|b| *b == 0)?;
                let text = String::from_utf8_lossy(part.get(..end)?);
                Some(text.into_owned().into())
            }
        }
    }

    fn path(&self, path: &Path) -> Option<String> {
        let file = self.get(&path.file)?;
        let (comp_dir, directory) = (self.get(&path.comp_dir), self.get(&path.directory));
        Some(lines::join([
            comp_dir.as_deref(),
            directory.as_deref(),
            Some(&file),
        ]))
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
    let mut frames = Vec::with_capacity(chain.len());
    let mut place = lines.at.get(&idx).copied();
    for raw in chain.iter().rev() {
        let path = place.and_then(|(file, _)| lines.paths.get(&file));
        frames.push(DwarfFrame {
            name: texts.get(text_of(&raw.name, names)).map(Arc::from),
            file: path.and_then(|p| texts.path(p)).map(Arc::from),
            line: place.map(|(_, line)| line).filter(|line| *line > 0),
        });
        place = raw.call;
    }
    if chain.is_empty() {
        // A line without a function: assembler.
        let path = place.and_then(|(file, _)| lines.paths.get(&file));
        frames.push(DwarfFrame {
            name: None,
            file: path.and_then(|p| texts.path(p)).map(Arc::from),
            line: place.map(|(_, line)| line).filter(|line| *line > 0),
        });
    }
    let n_frames = frames.len();
    if n_frames > MAX_CHAIN {
        // The last frame is the function itself and must stay.
        frames.drain(MAX_CHAIN - 1..n_frames - 1);
    }
    frames
}
