//! The entries of a unit to the functions at addresses, inline ones included.
//!
//! One pass over the unit. Only functions that hold one of the addresses are looked into; their
//! names may lie in other units and are then given as where to look.

use std::collections::HashMap;

use gimli::{Abbreviation, AttributeValue, EntriesRaw, UnitOffset};

use crate::error::DwarfError;
use crate::text::{Slice, Text, Value};
use crate::unit::Unit;
use crate::wanted::{Wanted, among};

/// Most functions at one address; the innermost ones are kept.
pub(crate) const MAX_CHAIN: usize = 200;
/// Most references followed from an entry to its name.
pub(crate) const MAX_REFERENCES: usize = 16;
/// Deepest nesting of functions and inlined functions; deeper ones are left out.
const MAX_CONTEXTS: usize = 2 * MAX_CHAIN;

/// The name of a function, or the entry that has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Name {
    Text(Text),
    /// An entry of `.debug_info` by offset.
    Entry(u64),
    /// An entry of the supplementary file's `.debug_info` by offset.
    SupEntry(u64),
}

/// A function at an address, before its strings are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawFrame {
    pub(crate) name: Name,
    /// File (index in the unit's file table) and line where it is inlined into its caller; not for
    /// the outermost.
    pub(crate) call: Option<(u64, u32)>,
}

/// Functions at each address that has one, by the address's index, outermost first.
pub(crate) type Chains = HashMap<usize, Vec<RawFrame>>;

/// An open function or inlined function on the way down the tree.
struct ContextEntry {
    depth: isize,
    /// The addresses inside it, in order; empty where nothing below it is of interest.
    inside: Vec<Wanted>,
    /// Frames of those addresses up to and with this one.
    n_frames: usize,
}

/// Finds the functions at `wanted`, which is sorted.
pub(crate) fn find(unit: &Unit<'_>, wanted: &[Wanted]) -> Result<Chains, DwarfError> {
    let mut walk = Walk {
        unit,
        wanted,
        names: HashMap::new(),
        chains: Chains::new(),
        contexts: Vec::new(),
    };
    walk.run()?;
    Ok(walk.chains)
}

struct Walk<'u, 'a> {
    unit: &'u Unit<'a>,
    wanted: &'u [Wanted],
    /// By the offset of the entry that a name is taken from.
    names: HashMap<u64, Name>,
    chains: Chains,
    contexts: Vec<ContextEntry>,
}

impl<'a> Walk<'_, 'a> {
    fn run(&mut self) -> Result<(), DwarfError> {
        let mut entries = self.unit.entries(self.unit.header.root_offset())?;
        // Jumps to a sibling start again at depth 0.
        let mut base_depth = 0;
        while !entries.is_empty() {
            let depth = base_depth + entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while self.contexts.last().is_some_and(|c| c.depth >= depth) {
                self.contexts.pop();
            }
            let sibling = match abbreviation.tag() {
                gimli::DW_TAG_subprogram => self.function(&mut entries, abbreviation, depth)?,
                gimli::DW_TAG_inlined_subroutine if !self.contexts.is_empty() => {
                    self.inlined(&mut entries, abbreviation, depth)?
                }
                tag => skip(
                    &mut entries,
                    abbreviation,
                    self.unit.is_cpp && self.contexts.is_empty() && is_type(tag),
                )?,
            };
            if let Some(sibling) = sibling
                && sibling > entries.next_offset()
            {
                entries = self.unit.entries(sibling)?;
                base_depth = depth;
            }
        }
        Ok(())
    }

    /// Opens a function; returns its sibling when nothing inside is of interest.
    fn function(
        &mut self,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
        depth: isize,
    ) -> Result<Option<UnitOffset>, DwarfError> {
        let has_code = abbreviation
            .attributes()
            .iter()
            .any(|a| matches!(a.name(), gimli::DW_AT_low_pc | gimli::DW_AT_ranges));
        if !has_code {
            // A declaration, or what inlined functions are instances of. The code of a lambda or of
            // a local class may be inside.
            self.open(depth, Vec::new(), 0);
            return skip(entries, abbreviation, false);
        }
        let attributes = Attributes::read(self.unit, entries, abbreviation)?;
        let inside = among(self.wanted, &attributes.ranges(self.unit)?);
        if !inside.is_empty() {
            let name = self.name(&attributes.naming)?;
            for (_, idx) in &inside {
                // One that lies in another function, or repeats it, is the more exact one.
                let frame = RawFrame {
                    name: name.clone(),
                    call: None,
                };
                self.chains.insert(*idx, vec![frame]);
            }
        }
        self.open(depth, inside, 1);
        Ok(None)
    }

    /// Opens an inlined function, likewise.
    fn inlined(
        &mut self,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
        depth: isize,
    ) -> Result<Option<UnitOffset>, DwarfError> {
        let context = self.contexts.last().filter(|c| !c.inside.is_empty());
        let Some(context) = context.filter(|_| self.contexts.len() < MAX_CONTEXTS) else {
            return skip(entries, abbreviation, true);
        };
        let (outer, n_frames) = (&context.inside, context.n_frames);
        let attributes = Attributes::read(self.unit, entries, abbreviation)?;
        let mut inside = among(outer, &attributes.ranges(self.unit)?);
        // An address is in one inlined function of each level; the first that holds it counts.
        let chains = &self.chains;
        inside.retain(|(_, idx)| chains.get(idx).is_some_and(|c| c.len() == n_frames));
        if inside.is_empty() {
            self.open(depth, Vec::new(), 0);
            return Ok(attributes.sibling);
        }
        let frame = RawFrame {
            name: self.name(&attributes.naming)?,
            call: attributes.call(self.unit),
        };
        for (_, idx) in &inside {
            if let Some(chain) = self.chains.get_mut(idx) {
                chain.push(frame.clone());
            }
        }
        self.open(depth, inside, n_frames + 1);
        Ok(None)
    }

    fn open(&mut self, depth: isize, inside: Vec<Wanted>, n_frames: usize) {
        if self.contexts.len() < MAX_CONTEXTS {
            self.contexts.push(ContextEntry {
                depth,
                inside,
                n_frames,
            });
        }
    }

    fn name(&mut self, naming: &Naming) -> Result<Name, DwarfError> {
        let (Text::None, Some(Name::Entry(offset))) = (&naming.linkage, &naming.origin) else {
            return Ok(naming.own());
        };
        if let Some(name) = self.names.get(offset) {
            return Ok(name.clone());
        }
        let name = follow(self.unit, naming)?;
        self.names.insert(*offset, name.clone());
        Ok(name)
    }
}

/// Compilers of C++ put no code into a type that lies outside of functions: what it declares is
/// defined elsewhere.
fn is_type(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}

/// Skips an entry; with `whole`, returns its sibling where it is stated.
fn skip<'a>(
    entries: &mut EntriesRaw<'_, Slice<'a>>,
    abbreviation: &Abbreviation,
    whole: bool,
) -> Result<Option<UnitOffset>, DwarfError> {
    let specs = abbreviation.attributes();
    let states_sibling = specs.iter().any(|s| s.name() == gimli::DW_AT_sibling);
    if !whole || !states_sibling {
        entries.skip_attributes(specs)?;
        return Ok(None);
    }
    let mut sibling = None;
    for spec in specs {
        let attribute = entries.read_attribute(*spec)?;
        if let (gimli::DW_AT_sibling, AttributeValue::UnitRef(offset)) =
            (attribute.name(), attribute.value())
        {
            sibling = Some(offset);
        }
    }
    Ok(sibling)
}

/// What an entry says about its name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Naming {
    linkage: Text,
    plain: Text,
    /// The entry that it is an instance of, or that declares it.
    origin: Option<Name>,
}

impl Naming {
    fn read<'a>(
        &mut self,
        unit: &Unit<'a>,
        name: gimli::DwAt,
        value: &Value<'a>,
    ) -> Result<(), DwarfError> {
        match name {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                self.linkage = unit.text(value)?;
            }
            gimli::DW_AT_name => self.plain = unit.text(value)?,
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                self.origin = match value {
                    AttributeValue::UnitRef(at) => {
                        Some(Name::Entry(unit.offset.saturating_add(at.0 as u64)))
                    }
                    AttributeValue::DebugInfoRef(at) => Some(Name::Entry(at.0 as u64)),
                    AttributeValue::DebugInfoRefSup(at) => Some(Name::SupEntry(at.0 as u64)),
                    _ => None,
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// The name without following references inside the unit.
    fn own(&self) -> Name {
        match (&self.linkage, &self.origin, &self.plain) {
            (Text::None, Some(origin), _) => origin.clone(),
            (Text::None, None, plain) => Name::Text(plain.clone()),
            (linkage, ..) => Name::Text(linkage.clone()),
        }
    }
}

/// Follows references inside the unit; what leads out of it is left as a reference.
fn follow(unit: &Unit<'_>, naming: &Naming) -> Result<Name, DwarfError> {
    let mut naming = naming.clone();
    let own_size = unit.header.length_including_self() as u64;
    for _ in 0..MAX_REFERENCES {
        let (Text::None, Some(Name::Entry(offset))) = (&naming.linkage, &naming.origin) else {
            break;
        };
        let Some(inside) = offset.checked_sub(unit.offset).filter(|o| *o < own_size) else {
            break;
        };
        let at = UnitOffset(usize::try_from(inside).unwrap_or(usize::MAX));
        let next = read_naming(unit, at)?;
        // A plain name counts if no linkage name follows.
        let plain = match next.plain {
            Text::None => naming.plain,
            plain => plain,
        };
        naming = Naming { plain, ..next };
    }
    Ok(match naming {
        Naming {
            linkage: Text::None,
            plain: Text::None,
            origin: Some(origin),
        } => origin,
        Naming {
            linkage: Text::None,
            plain,
            ..
        } => Name::Text(plain),
        Naming { linkage, .. } => Name::Text(linkage),
    })
}

/// What the entry at `at` says about its name, references followed inside the unit.
pub(crate) fn name_at(unit: &Unit<'_>, at: UnitOffset) -> Result<Name, DwarfError> {
    let naming = read_naming(unit, at)?;
    follow(unit, &naming)
}

fn read_naming(unit: &Unit<'_>, at: UnitOffset) -> Result<Naming, DwarfError> {
    let mut naming = Naming::default();
    for (name, value) in unit.attributes(at)? {
        naming.read(unit, name, &value)?;
    }
    Ok(naming)
}

/// What is read of a function's entry.
#[derive(Default)]
struct Attributes {
    low_pc: Option<u64>,
    high_pc: Option<u64>,
    ranges: Option<u64>,
    naming: Naming,
    call_file: Option<u64>,
    call_line: u32,
    sibling: Option<UnitOffset>,
}

impl Attributes {
    fn read<'a>(
        unit: &Unit<'a>,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
    ) -> Result<Self, DwarfError> {
        let mut this = Self::default();
        let mut high_pc = None;
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            let value = attribute.value();
            match (attribute.name(), value) {
                (gimli::DW_AT_low_pc, value) => this.low_pc = unit.address(&value)?,
                (gimli::DW_AT_high_pc, value) => high_pc = Some(value),
                (gimli::DW_AT_ranges, value) => this.ranges = unit.ranges_offset(&value)?,
                (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) => {
                    this.call_file = Some(file);
                }
                (gimli::DW_AT_call_line, _) => {
                    let line = attribute.udata_value().unwrap_or(0);
                    this.call_line = u32::try_from(line).unwrap_or(0);
                }
                (gimli::DW_AT_sibling, AttributeValue::UnitRef(at)) => this.sibling = Some(at),
                (name, value) => this.naming.read(unit, name, &value)?,
            }
        }
        if let (Some(low_pc), Some(value)) = (this.low_pc, &high_pc) {
            this.high_pc = unit.high_pc(value, low_pc)?;
        }
        Ok(this)
    }

    /// Where its code is, end exclusive.
    fn ranges(&self, unit: &Unit<'_>) -> Result<Vec<(u64, u64)>, DwarfError> {
        match (self.ranges, self.low_pc, self.high_pc) {
            (Some(offset), ..) => unit.range_list(offset),
            (None, Some(begin), Some(end)) => Ok(vec![(begin, end)]),
            _ => Ok(Vec::new()),
        }
    }

    /// Where the function is inlined. Before DWARF 5, file 0 means that it is not known.
    fn call(&self, unit: &Unit<'_>) -> Option<(u64, u32)> {
        let file = self
            .call_file
            .filter(|file| *file > 0 || unit.header.version() >= 5)?;
        Some((file, self.call_line))
    }
}
