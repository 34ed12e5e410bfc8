//! Split DWARF: skeletons to the functions of the units that were split off them, from `.dwp`
//! packages and `.dwo` files (DWARF 5, 7.3.5; before that the GNU extension with the same names).
//!
//! A unit is taken only if its id is that of the skeleton. Its addresses, and before DWARF 5 its
//! ranges, lie in tables of the linked file; so do the lines. Strings are read for each file before
//! it is closed.

use std::collections::HashMap;

use gimli::{DebugCuIndex, IndexSectionId, LittleEndian, SectionId, UnitIndex, UnitType};

use super::functions::{self, Chains, Name, Wanted};
use super::scan::{Choice, Chooser, TakenUnit, scan};
use super::table::Table;
use super::text::{self, Text};
use super::unit::{self, Inherited, Parts, Slice, Tables, Unit};
use super::units::UnitFrames;
use super::{DwarfError, DwarfFiles, Failures, Shares, SplitFile, TextOffsets, Texts};
use crate::budget::Budget;
use crate::elf::{ElfFile, Section};

/// Largest index of a package, bytes.
const MAX_INDEX: u64 = 64 << 20;

/// What a unit keeps of the one that was split off it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Skeleton {
    id: u64,
    name: Text,
    inherited: Inherited,
}

impl Skeleton {
    /// `None` of a unit that is whole.
    pub(super) fn of(unit: &Unit<'_>) -> Option<Self> {
        let is_skeleton = matches!(unit.header.type_(), UnitType::Skeleton(_));
        (is_skeleton || unit.dwo_name != Text::None).then_some(())?;
        Some(Self {
            id: unit.dwo_id?,
            name: unit.dwo_name.clone(),
            inherited: unit.inherited(),
        })
    }
}

/// A unit to be found.
struct Search {
    /// In the caller's list.
    unit: usize,
    id: u64,
    inherited: Inherited,
    wanted: Vec<Wanted>,
}

/// A unit to be found, and where it is in the file.
struct Found<'s> {
    search: &'s Search,
    parts: Parts,
}

/// Adds the functions of split units to their skeletons; which files had them.
pub(super) fn read(
    files: DwarfFiles<'_>,
    tables: &Tables<'_>,
    units: &mut [UnitFrames],
    shares: Shares,
    failures: &mut Failures,
) -> Result<Vec<SplitFile>, DwarfError> {
    let mut open: Vec<Search> = Vec::new();
    for (i, unit) in units.iter().enumerate() {
        if let Some(skeleton) = unit.skeleton.as_ref().filter(|_| !unit.wanted.is_empty()) {
            open.push(Search {
                unit: i,
                id: skeleton.id,
                inherited: skeleton.inherited,
                wanted: unit.wanted.clone(),
            });
        }
    }
    let mut used = Vec::new();
    let Some(split) = files.split.filter(|_| !open.is_empty()) else {
        return Ok(used);
    };
    // Of no interest if the units are elsewhere.
    let mut refused = None;
    for package in split.packages() {
        if open.is_empty() {
            break;
        }
        let package = match package {
            Ok(package) => package,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        match read_package(&package.elf, tables, &open, shares, failures) {
            Ok(found) => {
                if !found.is_empty() {
                    used.push(package);
                }
                open.retain(|search| !found.contains_key(&search.unit));
                add(units, found);
            }
            Err(error) => {
                refused.get_or_insert(unusable(&package, &error));
            }
        }
    }
    let texts = names(files, units, &open, shares)?;
    for search in open {
        let text = |of: &dyn Fn(&UnitFrames) -> Text| {
            let unit = units.get(search.unit)?;
            texts.get(&of(unit)).map(|text| text.into_owned())
        };
        let comp_dir = text(&|unit| unit.comp_dir.clone()).unwrap_or_default();
        let name = text(&|unit| {
            let skeleton = unit.skeleton.as_ref();
            skeleton.map_or(Text::None, |s| s.name.clone())
        });
        let n_wanted = search.wanted.len();
        let file = match split.object(&comp_dir, &name.unwrap_or_default()) {
            Ok(file) => file,
            Err(error) => {
                failures.add(n_wanted, refused.take().unwrap_or(error));
                continue;
            }
        };
        match read_object(&file.elf, tables, &search, shares, failures) {
            Ok(Some(found)) => {
                add(units, HashMap::from([(search.unit, found)]));
                if used.iter().all(|file| file.is_package) {
                    used.push(file);
                }
            }
            Ok(None) => failures.add(
                n_wanted,
                DwarfError::SplitUnusable {
                    path: file.path.display().to_string(),
                    reason: format!(
                        "it has no unit {:016x}, so that it is of another build",
                        search.id
                    ),
                },
            ),
            Err(error) => failures.add(n_wanted, unusable(&file, &error)),
        }
    }
    Ok(used)
}

fn unusable(file: &SplitFile, error: &DwarfError) -> DwarfError {
    DwarfError::SplitUnusable {
        path: file.path.display().to_string(),
        reason: format!("{error}"),
    }
}

/// Functions by the unit's place in the list.
type ByUnit = HashMap<usize, Chains>;

fn add(units: &mut [UnitFrames], found: ByUnit) {
    for (i, chains) in found {
        if let Some(unit) = units.get_mut(i) {
            unit.chains.extend(chains);
        }
    }
}

/// Names and folders of the files that are still to be opened.
fn names<'a>(
    files: DwarfFiles<'a>,
    units: &[UnitFrames],
    open: &[Search],
    shares: Shares,
) -> Result<Texts<'a>, DwarfError> {
    let mut wanted = TextOffsets::default();
    for unit in open.iter().filter_map(|search| units.get(search.unit)) {
        wanted.add(&unit.comp_dir);
        if let Some(skeleton) = &unit.skeleton {
            wanted.add(&skeleton.name);
        }
    }
    let strings = wanted.read(files, shares)?;
    Texts::read(files, &[], strings, shares)
}

/// Sections of a split file, by the name that ends in `.dwo`.
fn section(elf: &ElfFile, id: SectionId) -> Option<&Section> {
    elf.debug_section(id.dwo_name()?.strip_prefix('.')?)
}

/// The tables of a split file's units, some of which are the linked file's.
fn split_tables<'a>(
    elf: &'a ElfFile,
    linked: &Tables<'a>,
    shares: Shares,
) -> Result<Tables<'a>, DwarfError> {
    // Half, since those of the linked file are open, too.
    let mut room = shares.tables / 2;
    let mut open = |id| Table::open(elf, section(elf, id), &mut room);
    Ok(Tables {
        abbrev: open(SectionId::DebugAbbrev)?,
        addr: linked.addr.clone(),
        ranges: linked.ranges.clone(),
        rnglists: open(SectionId::DebugRngLists)?,
        str_offsets: open(SectionId::DebugStrOffsets)?,
    })
}

/// The units of a package that are searched.
fn read_package<'a>(
    elf: &'a ElfFile,
    linked: &Tables<'a>,
    searches: &[Search],
    shares: Shares,
    failures: &mut Failures,
) -> Result<ByUnit, DwarfError> {
    let mut chains = ByUnit::new();
    let Some(index) = elf.debug_section("debug_cu_index") else {
        return Ok(chains);
    };
    let index = elf.read(index, MAX_INDEX)?;
    let index = DebugCuIndex::new(&index, LittleEndian).index()?;
    let mut by_offset: HashMap<u64, Found<'_>> = HashMap::new();
    for search in searches {
        if let Some((offset, parts)) = contribution(&index, search.id)? {
            by_offset.insert(offset, Found { search, parts });
        }
    }
    let Some(info) = section(elf, SectionId::DebugInfo).filter(|_| !by_offset.is_empty()) else {
        return Ok(chains);
    };
    let tables = split_tables(elf, linked, shares)?;
    let in_flight = Budget::new(shares.units);
    let consume = |taken: TakenUnit<'_>| {
        let Some(found) = by_offset.get(&taken.offset) else {
            return;
        };
        let functions = taken
            .bytes
            .and_then(|bytes| functions_of(&bytes, taken.offset, &tables, found));
        match functions {
            Ok(Some(functions)) => {
                chains.insert(found.search.unit, functions);
            }
            // The index lies.
            Ok(None) => {}
            Err(error) => failures.add(found.search.wanted.len(), error),
        }
    };
    let last = by_offset.keys().max().copied();
    let chooser = ByOffset {
        units: &by_offset,
        end: last.map_or(0, |last| last.saturating_add(1)),
    };
    scan(elf, info, &in_flight, chooser, consume)?;
    read_strings(elf, &mut chains, shares, failures)?;
    Ok(chains)
}

/// Where the unit is, and its parts of the tables.
fn contribution(index: &UnitIndex<Slice<'_>>, id: u64) -> Result<Option<(u64, Parts)>, DwarfError> {
    let Some(row) = index.find(id) else {
        return Ok(None);
    };
    let mut offset = None;
    let mut parts = Parts::default();
    for section in index.sections(row)? {
        let at = u64::from(section.offset);
        match section.section {
            IndexSectionId::DebugInfo => offset = Some(at),
            IndexSectionId::DebugAbbrev => parts.abbrev = at,
            IndexSectionId::DebugStrOffsets => parts.str_offsets = at,
            IndexSectionId::DebugRngLists => parts.rnglists = at,
            _ => {}
        }
    }
    Ok(offset.map(|offset| (offset, parts)))
}

/// Takes the units of a package that are searched.
struct ByOffset<'f> {
    units: &'f HashMap<u64, Found<'f>>,
    end: u64,
}

impl Chooser for ByOffset<'_> {
    fn choose(&mut self, offset: u64, _size: u64) -> Choice {
        match self.units.contains_key(&offset) {
            true => Choice::Take,
            false => Choice::Skip,
        }
    }

    fn peek(&mut self, _offset: u64, _bytes: &[u8]) -> Result<bool, DwarfError> {
        Ok(false)
    }

    fn end(&self) -> u64 {
        self.end
    }
}

/// The functions of one unit in a file of its own; `None` when it is not there.
fn read_object<'a>(
    elf: &'a ElfFile,
    linked: &Tables<'a>,
    search: &Search,
    shares: Shares,
    failures: &mut Failures,
) -> Result<Option<Chains>, DwarfError> {
    let tables = split_tables(elf, linked, shares)?;
    let parts = Parts::default();
    let in_flight = Budget::new(shares.units);
    let mut result = Ok(None);
    let mut consume = |taken: TakenUnit<'_>| {
        if matches!(result, Ok(None)) {
            let found = Found { search, parts };
            let bytes = taken.bytes;
            result = bytes.and_then(|bytes| functions_of(&bytes, taken.offset, &tables, &found));
        }
    };
    // Units of types may have sections of their own, of the same name.
    let is_info =
        |s: &&Section| s.has_data() && matches!(&*s.name, ".debug_info.dwo" | ".zdebug_info.dwo");
    for info in elf.sections.iter().filter(is_info) {
        scan(elf, info, &in_flight, ById(search.id), &mut consume)?;
    }
    let Some(functions) = result? else {
        return Ok(None);
    };
    let mut chains = ByUnit::from([(search.unit, functions)]);
    read_strings(elf, &mut chains, shares, failures)?;
    Ok(chains.remove(&search.unit))
}

/// Takes the units that may have an id. Before DWARF 5 only their root entry tells.
struct ById(u64);

impl Chooser for ById {
    fn choose(&mut self, _offset: u64, _size: u64) -> Choice {
        Choice::Peek
    }

    fn peek(&mut self, offset: u64, bytes: &[u8]) -> Result<bool, DwarfError> {
        let header = unit::header(bytes, offset)?;
        Ok(match unit::split_id(&header) {
            Some(id) => id == self.0,
            None => header.version() < 5,
        })
    }

    fn end(&self) -> u64 {
        u64::MAX
    }
}

/// The functions of a unit, if it is the one that is searched.
fn functions_of(
    bytes: &[u8],
    offset: u64,
    tables: &Tables<'_>,
    found: &Found<'_>,
) -> Result<Option<Chains>, DwarfError> {
    let Found { search, parts } = found;
    let unit = Unit::parse_split(bytes, offset, tables, search.inherited, *parts)?;
    if unit.dwo_id != Some(search.id) {
        return Ok(None);
    }
    functions::find(&unit, &search.wanted).map(Some)
}

/// Reads the names of functions, since no other file has them.
fn read_strings(
    elf: &ElfFile,
    chains: &mut ByUnit,
    shares: Shares,
    failures: &mut Failures,
) -> Result<(), DwarfError> {
    let frames = || chains.values().flat_map(HashMap::values).flatten();
    let offsets = frames().filter_map(|frame| match &frame.name {
        Name::Text(Text::Str(offset)) => Some(*offset),
        _ => None,
    });
    let limit = shares.strings;
    let strings = section(elf, SectionId::DebugStr);
    let (strings, n_dropped) = text::pick(elf, strings, offsets.collect(), limit)?;
    failures.add(n_dropped, DwarfError::Strings { limit });
    // Each once, for all frames that have it.
    let strings: HashMap<u64, Text> = strings
        .into_iter()
        .map(|(offset, text)| (offset, Text::Inline(text.into_bytes().into())))
        .collect();
    for frame in chains.values_mut().flat_map(HashMap::values_mut).flatten() {
        frame.name = Name::Text(match &frame.name {
            Name::Text(Text::Str(offset)) => strings.get(offset).cloned().unwrap_or_default(),
            Name::Text(text @ Text::Inline(_)) => text.clone(),
            // Nothing leads out of a split unit.
            _ => Text::None,
        });
    }
    Ok(())
}
