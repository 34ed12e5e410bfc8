//! The entries of a unit to the functions at addresses, inline ones included.
//!
//! One pass over the unit. Only functions that hold one of the addresses are looked into; their
//! names may lie in other units and are then given as where to look.

use std::collections::HashMap;

use gimli::{Abbreviation, AttributeValue, EntriesRaw, UnitOffset};

use crate::allowance::Allowance;
use crate::error::DwarfError;
use crate::text::{Slice, Text, Value};
use crate::unit::Unit;
use crate::wanted::Wanted;

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

impl Name {
    /// Memory that it takes beside itself.
    pub(crate) fn heap_size(&self) -> u64 {
        match self {
            Self::Text(text) => text.heap_size(),
            Self::Entry(_) | Self::SupEntry(_) => 0,
        }
    }
}

/// A function at an address, before its strings are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RawFrame {
    pub(crate) name: Name,
    /// File (index in the unit's file table) and line where it is inlined into its caller; not for
    /// the outermost.
    pub(crate) call: Option<(u64, u32)>,
}

/// The functions of a unit that hold addresses: each once, with the one around it.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// A function comes after the one around it.
    nodes: Vec<Node>,
    /// The innermost function by the address's index.
    innermost: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Node {
    frame: RawFrame,
    /// Index of the function that it is inlined into.
    caller: Option<usize>,
}

impl Functions {
    /// Whether one holds the address.
    pub(crate) fn has(&self, idx: usize) -> bool {
        self.innermost.contains_key(&idx)
    }

    /// The functions at an address, innermost first; none where no function is known.
    pub(crate) fn at(&self, idx: usize) -> impl Iterator<Item = &RawFrame> {
        let node = |at: usize| self.nodes.get(at);
        let first = self.innermost.get(&idx).and_then(|at| node(*at));
        let chain = std::iter::successors(first, move |at| at.caller.and_then(node));
        chain.map(|node| &node.frame)
    }

    /// All functions.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &RawFrame> {
        self.nodes.iter().map(|node| &node.frame)
    }

    /// Adds the functions of another part of the unit, which are the more exact ones.
    pub(crate) fn extend(&mut self, other: Self) {
        let n = self.nodes.len();
        self.nodes.extend(other.nodes.into_iter().map(|node| Node {
            caller: node.caller.map(|at| at + n),
            ..node
        }));
        let innermost = other.innermost.into_iter();
        self.innermost
            .extend(innermost.map(|(idx, at)| (idx, at + n)));
    }

    pub(crate) fn frames_mut(&mut self) -> impl Iterator<Item = &mut RawFrame> {
        self.nodes.iter_mut().map(|node| &mut node.frame)
    }

    /// The functions of a walk, without those that no address has; `innermost` by place in `wanted`.
    fn new(nodes: Vec<Node>, innermost: &[Option<usize>], wanted: &[Wanted]) -> Self {
        let mut is_used = vec![false; nodes.len()];
        for mut at in innermost.iter().copied() {
            while let Some((node, slot)) = at.and_then(|at| nodes.get(at).zip(is_used.get_mut(at)))
                && !*slot
            {
                *slot = true;
                at = node.caller;
            }
        }
        let mut n_used = 0;
        let place = |is_used: &bool| {
            n_used += usize::from(*is_used);
            is_used.then(|| n_used - 1)
        };
        let places: Vec<Option<usize>> = is_used.iter().map(place).collect();
        let place = |at: usize| places.get(at).copied().flatten();
        let used = nodes
            .into_iter()
            .zip(is_used)
            .filter(|(_, is_used)| *is_used);
        let nodes = used.map(|(node, _)| Node {
            caller: node.caller.and_then(place),
            ..node
        });
        let innermost = wanted.iter().zip(innermost);
        let innermost = innermost.filter_map(|((_, idx), at)| Some((*idx, place((*at)?)?)));
        Self {
            nodes: nodes.collect(),
            innermost: innermost.collect(),
        }
    }
}

/// An open function or inlined function on the way down the tree.
struct ContextEntry {
    depth: isize,
    /// Its index; `None` where nothing below it is of interest.
    node: Option<usize>,
}

/// Finds the functions at `wanted`, which is sorted. They take from `room`.
pub(crate) fn find(
    unit: &Unit<'_>,
    wanted: &[Wanted],
    room: &Allowance,
) -> Result<Functions, DwarfError> {
    let mut walk = Walk {
        unit,
        wanted,
        room,
        names: HashMap::new(),
        nodes: Vec::new(),
        innermost: vec![None; wanted.len()],
        contexts: Vec::new(),
    };
    walk.run()?;
    Ok(Functions::new(walk.nodes, &walk.innermost, wanted))
}

struct Walk<'u, 'a> {
    unit: &'u Unit<'a>,
    wanted: &'u [Wanted],
    room: &'u Allowance,
    /// By the offset of the entry that a name is taken from.
    names: HashMap<u64, Name>,
    nodes: Vec<Node>,
    /// The innermost function so far, by place in `wanted`.
    innermost: Vec<Option<usize>>,
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
            self.unit.reader.work(1 + abbreviation.attributes().len())?;
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
            self.open(depth, None);
            return skip(entries, abbreviation, false);
        }
        let attributes = Attributes::read(self.unit, entries, abbreviation)?;
        // One that lies in another function, or repeats it, is the more exact one.
        let node = self.take(&attributes, |_| true, None)?;
        self.open(depth, node);
        Ok(None)
    }

    /// Opens an inlined function, likewise.
    fn inlined(
        &mut self,
        entries: &mut EntriesRaw<'_, Slice<'a>>,
        abbreviation: &Abbreviation,
        depth: isize,
    ) -> Result<Option<UnitOffset>, DwarfError> {
        let caller = self.contexts.last().and_then(|context| context.node);
        let Some(caller) = caller.filter(|_| self.contexts.len() < MAX_CONTEXTS) else {
            return skip(entries, abbreviation, true);
        };
        let attributes = Attributes::read(self.unit, entries, abbreviation)?;
        // An address is in one inlined function of each level; the first that holds it counts.
        let node = self.take(&attributes, |at| at == Some(caller), Some(caller))?;
        self.open(depth, node);
        Ok(attributes.sibling.filter(|_| node.is_none()))
    }

    /// Gives a function the addresses inside it whose innermost function so far is to be replaced. Returns
    /// its index; `None` when it has none.
    fn take(
        &mut self,
        attributes: &Attributes,
        is_replaced: impl Fn(Option<usize>) -> bool,
        caller: Option<usize>,
    ) -> Result<Option<usize>, DwarfError> {
        let bounds = (attributes.low_pc, attributes.high_pc);
        let inside = self
            .unit
            .positions(attributes.ranges, bounds, self.wanted)?;
        let mut node = None;
        for at in inside.into_iter() {
            self.unit.reader.work(1)?;
            let is_taken = self
                .innermost
                .get(at)
                .is_some_and(|node| is_replaced(*node));
            if !is_taken {
                continue;
            }
            if node.is_none() {
                node = self.add(attributes, caller)?;
            }
            if let (Some(slot), Some(_)) = (self.innermost.get_mut(at), node) {
                *slot = node;
            }
        }
        Ok(node)
    }

    /// Adds a function; `None` when no room is left.
    fn add(
        &mut self,
        attributes: &Attributes,
        caller: Option<usize>,
    ) -> Result<Option<usize>, DwarfError> {
        if !self.room.take(size_of::<Node>() as u64) {
            return Ok(None);
        }
        let name = self.name(&attributes.naming)?;
        if !self.room.take(name.heap_size()) {
            return Ok(None);
        }
        let call = caller.and_then(|_| attributes.call(self.unit));
        self.nodes.push(Node {
            frame: RawFrame { name, call },
            caller,
        });
        Ok(Some(self.nodes.len() - 1))
    }

    fn open(&mut self, depth: isize, node: Option<usize>) {
        if self.contexts.len() < MAX_CONTEXTS {
            self.contexts.push(ContextEntry { depth, node });
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

    /// Where the function is inlined. Before DWARF 5, file 0 means that it is not known.
    fn call(&self, unit: &Unit<'_>) -> Option<(u64, u32)> {
        let file = self
            .call_file
            .filter(|file| *file > 0 || unit.header.version() >= 5)?;
        Some((file, self.call_line))
    }
}
