//! Split DWARF: skeletons to the functions of the units that were split off them, from `.dwp`
//! packages and `.dwo` files (DWARF 5, 7.3.5; before that the GNU extension with the same names).
//!
//! A unit is taken only if its id is that of the skeleton. Its addresses, and before DWARF 5 its
//! ranges, lie in tables of the linked file; so do the lines. Strings are read for each file before
//! it is closed.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use gimli::{DebugCuIndex, IndexSectionId, LittleEndian, SectionId, UnitIndex};

use crate::allowance::Allowance;
use crate::budget::Shares;
use crate::elf::{ElfFile, Section};
use crate::error::{DwarfError, Failures};
use crate::files::{DwarfFiles, SplitFile, SplitFiles, split_section_of};
use crate::functions::{self, Functions, Name};
use crate::scan::{Choice, Selection, TakenUnit, holding, scan};
use crate::tables::Tables;
use crate::text::{Slice, Strings, Text, read_strings};
use crate::unit::{self, Inherited, Parts, Unit};
use crate::unit_frames::UnitFrames;
use crate::unit_reader::UnitReader;
use crate::wanted::Wanted;

/// Largest index of a package, bytes.
const MAX_INDEX: u64 = 64 << 20;

/// How often a file of single units is read. Compilers make one for each unit.
const MAX_READS: usize = 64;

/// A unit to be found.
struct Search {
    /// Index of its skeleton.
    unit: usize,
    id: u64,
    inherited: Inherited,
    wanted: Vec<Wanted>,
    /// Folder and name of the file that the skeleton names.
    file: (Text, Text),
}

/// Functions by the index of the skeleton.
type ByUnit = HashMap<usize, Functions>;

/// Adds the functions of split units to their skeletons; returns the files that had them.
pub(crate) fn read(
    files: DwarfFiles<'_>,
    linked: &Tables<'_>,
    units: &mut [UnitFrames],
    shares: &Shares<'_>,
    failures: &mut Failures,
) -> Result<Vec<SplitFile>, DwarfError> {
    let skeletons = (0..).zip(units.iter());
    let searches = skeletons.filter_map(|(i, unit): (usize, &UnitFrames)| {
        let skeleton = unit.skeleton.as_ref().filter(|_| !unit.wanted.is_empty())?;
        Some(Search {
            unit: i,
            id: skeleton.id,
            inherited: skeleton.inherited,
            wanted: unit.wanted.clone(),
            file: (unit.comp_dir.clone(), skeleton.name.clone()),
        })
    });
    let open: Vec<Search> = searches.collect();
    let Some(split) = files.split.filter(|_| !open.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut reader = Reader {
        linked,
        shares,
        failures,
        open,
        found: ByUnit::new(),
        used: Vec::new(),
        n_reads: HashMap::new(),
    };
    let refused = reader.read_packages(split);
    reader.read_objects(files, split, refused)?;
    let Reader { found, used, .. } = reader;
    for (i, functions) in found {
        if let Some(unit) = units.get_mut(i) {
            unit.functions.extend(functions);
        }
    }
    Ok(used)
}

/// Searches units in split files.
struct Reader<'r, 'a> {
    linked: &'r Tables<'a>,
    shares: &'r Shares<'r>,
    failures: &'r mut Failures,
    /// What is still to be found.
    open: Vec<Search>,
    found: ByUnit,
    /// Files that had units: packages, and the first of single units.
    used: Vec<SplitFile>,
    /// How often files of single units were read, by device and inode.
    n_reads: HashMap<(u64, u64), usize>,
}

impl Reader<'_, '_> {
    /// Reads packages; returns why the first of those that cannot be used was refused.
    fn read_packages(&mut self, split: &dyn SplitFiles) -> Option<DwarfError> {
        let mut refused = None;
        for package in split.packages() {
            if self.open.is_empty() {
                break;
            }
            let read = package.and_then(|package| match self.read_package(&package.elf) {
                Ok(found) => Ok((package, found)),
                Err(error) => Err(unusable(&package, &error)),
            });
            match read {
                Ok((package, found)) => {
                    if !found.is_empty() {
                        self.used.push(package);
                    }
                    self.open.retain(|search| !found.contains_key(&search.unit));
                    self.found.extend(found);
                }
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        refused
    }

    /// Reads the files of single units. `refused`, a package that cannot be used, explains the first one
    /// that is missing.
    fn read_objects(
        &mut self,
        files: DwarfFiles<'_>,
        split: &dyn SplitFiles,
        mut refused: Option<DwarfError>,
    ) -> Result<(), DwarfError> {
        let open = std::mem::take(&mut self.open);
        let names = open
            .iter()
            .flat_map(|search| [&search.file.0, &search.file.1]);
        let mut strings = Strings::default();
        strings.read(files, names, &self.shares.strings)?;
        for search in open {
            let (dir, name) = (strings.get(&search.file.0), strings.get(&search.file.1));
            let (dir, name) = (dir.as_deref().unwrap_or(""), name.as_deref().unwrap_or(""));
            let object = split.object(dir, name);
            let object = object.map_err(|error| refused.take().unwrap_or(error));
            let object = object.and_then(|file| self.count(file));
            let read = object.and_then(|file| match self.read_object(&file.elf, &search) {
                Ok(Some(functions)) => Ok((file, functions)),
                Ok(None) => Err(DwarfError::SplitUnusable {
                    path: file.path.display().to_string(),
                    reason: format!(
                        "it has no unit {:016x}, so that it is of another build",
                        search.id
                    ),
                }),
                Err(error) => Err(unusable(&file, &error)),
            });
            match read {
                Ok((file, functions)) => {
                    self.found.insert(search.unit, functions);
                    if self.used.iter().all(|file| file.is_package) {
                        self.used.push(file);
                    }
                }
                Err(error) => self.failures.add(search.wanted.len(), error),
            }
        }
        Ok(())
    }

    /// Refuses a file that many skeletons name, which would be read for each of them.
    fn count(&mut self, file: SplitFile) -> Result<SplitFile, DwarfError> {
        let metadata = file.elf.file().and_then(|file| file.metadata().ok());
        let Some(metadata) = metadata else {
            return Ok(file);
        };
        let n = self
            .n_reads
            .entry((metadata.dev(), metadata.ino()))
            .or_default();
        *n += 1;
        match *n <= MAX_READS {
            true => Ok(file),
            false => Err(DwarfError::SplitUnusable {
                path: file.path.display().to_string(),
                reason: format!("more than {MAX_READS} units name it"),
            }),
        }
    }

    /// The functions of those units of a package that are searched.
    fn read_package(&mut self, elf: &ElfFile) -> Result<ByUnit, DwarfError> {
        let mut found = ByUnit::new();
        let Some(index) = elf.debug_section("debug_cu_index") else {
            return Ok(found);
        };
        let index = elf.read(index, MAX_INDEX)?;
        let index = DebugCuIndex::new(&index, LittleEndian).index()?;
        let mut by_offset: HashMap<u64, (&Search, Parts)> = HashMap::new();
        for search in &self.open {
            if let Some((offset, parts)) = contribution(&index, search.id)? {
                by_offset.insert(offset, (search, parts));
            }
        }
        let info = split_section_of(elf, SectionId::DebugInfo);
        let Some(info) = info.filter(|_| !by_offset.is_empty()) else {
            return Ok(found);
        };
        let tables = Tables::open_split(elf, self.linked, self.shares)?;
        let n_addresses = by_offset.values().map(|(search, _)| search.wanted.len());
        let reader = UnitReader::new((elf, split_section_of), &tables, n_addresses.sum())?;
        let room = &self.shares.frames;
        let consume = |taken: TakenUnit<'_>| {
            let Some((search, parts)) = by_offset.get(&taken.offset) else {
                return;
            };
            match search.functions(taken, &reader, *parts, room) {
                Ok(Some(functions)) => {
                    found.insert(search.unit, functions);
                }
                // The index lies.
                Ok(None) => {}
                Err(error) => self.failures.add(search.wanted.len(), error),
            }
        };
        let mut offsets: Vec<u64> = by_offset.keys().copied().collect();
        offsets.sort_unstable();
        scan(elf, info, self.shares.units, holding(&offsets), consume)?;
        self.read_names(elf, found.values_mut())?;
        Ok(found)
    }

    /// The functions of one unit in a file of its own; `None` when it is not there.
    fn read_object(
        &mut self,
        elf: &ElfFile,
        search: &Search,
    ) -> Result<Option<Functions>, DwarfError> {
        let tables = Tables::open_split(elf, self.linked, self.shares)?;
        let reader = UnitReader::new((elf, split_section_of), &tables, search.wanted.len())?;
        let room = &self.shares.frames;
        let mut result = Ok(None);
        let mut consume = |taken: TakenUnit<'_>| {
            if matches!(result, Ok(None)) {
                result = search.functions(taken, &reader, Parts::default(), room);
            }
        };
        // Units of types may have sections of their own, of the same name.
        let is_info = |s: &&Section| {
            s.has_data() && matches!(&*s.name, ".debug_info.dwo" | ".zdebug_info.dwo")
        };
        for info in elf.sections.iter().filter(is_info) {
            let selection = Selection {
                end: u64::MAX,
                choose: Box::new(|_, _| Choice::Peek),
                // Before DWARF 5 only the root entry has the id.
                peek: Box::new(|offset, bytes| {
                    let header = unit::header(bytes, offset)?;
                    let id = unit::split_id(&header);
                    Ok(id.map_or(header.version() < 5, |id| id == search.id))
                }),
            };
            scan(elf, info, self.shares.units, selection, &mut consume)?;
        }
        let mut functions = result?;
        self.read_names(elf, functions.as_mut())?;
        Ok(functions)
    }

    /// Reads the names of functions, since no other file has them.
    fn read_names<'f>(
        &mut self,
        elf: &ElfFile,
        functions: impl IntoIterator<Item = &'f mut Functions>,
    ) -> Result<(), DwarfError> {
        let functions = functions.into_iter();
        let mut frames: Vec<_> = functions.flat_map(Functions::frames_mut).collect();
        let offsets = frames.iter().filter_map(|frame| match &frame.name {
            Name::Text(Text::Str(offset)) => Some(*offset),
            _ => None,
        });
        let section = split_section_of(elf, SectionId::DebugStr);
        let strings = read_strings(elf, section, offsets.collect(), &self.shares.strings)?;
        for frame in &mut frames {
            frame.name = Name::Text(match &frame.name {
                Name::Text(Text::Str(offset)) => strings
                    .get(offset)
                    .map_or(Text::None, |text| Text::Inline(text.clone())),
                Name::Text(text @ Text::Inline(_)) => text.clone(),
                // Nothing leads out of a split unit.
                _ => Text::None,
            });
        }
        Ok(())
    }
}

impl Search {
    /// The functions of a unit; `None` if it is not the one that is searched.
    fn functions(
        &self,
        taken: TakenUnit<'_>,
        reader: &UnitReader<'_>,
        parts: Parts,
        room: &Allowance,
    ) -> Result<Option<Functions>, DwarfError> {
        let (bytes, split) = (taken.bytes?, (self.inherited, parts));
        let unit = Unit::parse(&bytes, taken.offset, reader, Some(split))?;
        match unit.dwo_id == Some(self.id) {
            true => functions::find(&unit, &self.wanted, room).map(Some),
            false => Ok(None),
        }
    }
}

fn unusable(file: &SplitFile, error: &DwarfError) -> DwarfError {
    DwarfError::SplitUnusable {
        path: file.path.display().to_string(),
        reason: error.to_string(),
    }
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
