//! One unit of `.debug_info`: its header, its root entry, and what its attributes refer to.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, EndianSlice,
    EntriesRaw, LittleEndian, RangeLists, RangeListsOffset, RawRngListEntry, UnitHeader,
    UnitOffset, UnitType,
};

use super::DwarfError;
use super::table::Table;
use super::text::Text;

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Value<'a> = AttributeValue<Slice<'a>>;

/// Ranges of one entry; real ones have thousands at most.
const MAX_RANGES: usize = 1 << 20;

/// The sections that entries refer to by offset, other than strings.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) abbrev: Table<'a>,
    /// Of the linked file, also for units that were split off.
    pub(super) addr: Arc<Table<'a>>,
    /// DWARF 4 and before; likewise.
    pub(super) ranges: Arc<Table<'a>>,
    /// DWARF 5.
    pub(super) rnglists: Table<'a>,
    pub(super) str_offsets: Table<'a>,
}

/// A unit's bytes with what is needed to read its entries.
pub(super) struct Unit<'a> {
    /// Where it begins in `.debug_info`.
    pub(super) offset: u64,
    pub(super) header: UnitHeader<Slice<'a>>,
    pub(super) abbreviations: Abbreviations,
    pub(super) tables: &'a Tables<'a>,
    low_pc: u64,
    high_pc: Option<u64>,
    ranges: Option<u64>,
    bases: Bases,
    pub(super) line_program: Option<u64>,
    pub(super) comp_dir: Text,
    /// Written in C++, by `DW_AT_language`.
    pub(super) is_cpp: bool,
    /// What tells a skeleton, and the unit that was split off it, from all others.
    pub(super) dwo_id: Option<u64>,
    /// File of the unit that was split off.
    pub(super) dwo_name: Text,
}

/// What a unit that was split off takes from its skeleton.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Inherited {
    low_pc: u64,
    addr: u64,
    gnu_ranges: u64,
}

/// Where the parts of a split unit begin in the tables of its file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Parts {
    pub(super) abbrev: u64,
    pub(super) str_offsets: u64,
    pub(super) rnglists: u64,
}

/// Where the unit's parts of indexed tables begin.
#[derive(Copy, Clone, Default)]
struct Bases {
    addr: u64,
    str_offsets: u64,
    rnglists: u64,
    /// `DW_AT_GNU_ranges_base` of the skeleton, for split units before DWARF 5.
    gnu_ranges: u64,
    /// The same for the unit that is split off this one.
    split_gnu_ranges: u64,
}

impl<'a> Unit<'a> {
    /// Reads header and root entry. `bytes` are the unit's, or its begin with a length to match.
    pub(super) fn parse(
        bytes: &'a [u8],
        offset: u64,
        tables: &'a Tables<'a>,
    ) -> Result<Self, DwarfError> {
        Self::parse_part(bytes, offset, tables, Inherited::default(), None)
    }

    /// The same of a unit that was split off.
    pub(super) fn parse_split(
        bytes: &'a [u8],
        offset: u64,
        tables: &'a Tables<'a>,
        inherited: Inherited,
        parts: Parts,
    ) -> Result<Self, DwarfError> {
        Self::parse_part(bytes, offset, tables, inherited, Some(parts))
    }

    fn parse_part(
        bytes: &'a [u8],
        offset: u64,
        tables: &'a Tables<'a>,
        inherited: Inherited,
        split: Option<Parts>,
    ) -> Result<Self, DwarfError> {
        let header = header(bytes, offset)?;
        let parts = split.unwrap_or_default();
        let at = (header.debug_abbrev_offset().0 as u64).saturating_add(parts.abbrev);
        let abbreviations = tables.abbrev.parse(at, |bytes| {
            DebugAbbrev::new(bytes, LittleEndian).abbreviations(DebugAbbrevOffset(0))
        })?;
        let format = u64::from(header.format().word_size());
        // Behind the header of the section's first part, where no attribute tells.
        let (str_offsets, rnglists) = match header.version() {
            ..=4 => (0, 0),
            _ => (2 * format, 2 * format + 4),
        };
        let mut unit = Self {
            offset,
            header,
            abbreviations,
            tables,
            low_pc: inherited.low_pc,
            high_pc: None,
            ranges: None,
            bases: Bases {
                addr: match split {
                    Some(_) => inherited.addr,
                    None => 8,
                },
                str_offsets: parts.str_offsets.saturating_add(str_offsets),
                rnglists: parts.rnglists.saturating_add(rnglists),
                gnu_ranges: inherited.gnu_ranges,
                split_gnu_ranges: 0,
            },
            line_program: None,
            comp_dir: Text::None,
            is_cpp: false,
            dwo_id: split_id(&header),
            dwo_name: Text::None,
        };
        unit.read_root()?;
        Ok(unit)
    }

    /// What the unit that is split off this one takes from it.
    pub(super) fn inherited(&self) -> Inherited {
        Inherited {
            low_pc: self.low_pc,
            addr: self.bases.addr,
            gnu_ranges: self.bases.split_gnu_ranges,
        }
    }

    fn read_root(&mut self) -> Result<(), DwarfError> {
        let root = self.attributes(self.header.root_offset())?;
        // Bases first: the other attributes may be counted from them.
        for (name, value) in &root {
            match (*name, value) {
                (gimli::DW_AT_addr_base | gimli::DW_AT_GNU_addr_base, value) => {
                    self.bases.addr = section_offset(value).unwrap_or(self.bases.addr);
                }
                (gimli::DW_AT_str_offsets_base, value) => {
                    self.bases.str_offsets =
                        section_offset(value).unwrap_or(self.bases.str_offsets);
                }
                (gimli::DW_AT_rnglists_base, value) => {
                    self.bases.rnglists = section_offset(value).unwrap_or(self.bases.rnglists);
                }
                (gimli::DW_AT_GNU_ranges_base, value) => {
                    self.bases.split_gnu_ranges = section_offset(value).unwrap_or(0);
                }
                (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => self.dwo_id = Some(id.0),
                _ => {}
            }
        }
        for (name, value) in &root {
            match *name {
                gimli::DW_AT_low_pc => self.low_pc = self.address(value)?.unwrap_or(self.low_pc),
                gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name => {
                    self.dwo_name = self.text(value)?;
                }
                gimli::DW_AT_stmt_list => self.line_program = section_offset(value),
                gimli::DW_AT_language => {
                    self.is_cpp = matches!(
                        value,
                        AttributeValue::Language(
                            gimli::DW_LANG_C_plus_plus
                                | gimli::DW_LANG_C_plus_plus_03
                                | gimli::DW_LANG_C_plus_plus_11
                                | gimli::DW_LANG_C_plus_plus_14
                                | gimli::DW_LANG_C_plus_plus_17
                                | gimli::DW_LANG_C_plus_plus_20
                        )
                    );
                }
                gimli::DW_AT_comp_dir => self.comp_dir = self.text(value)?,
                _ => {}
            }
        }
        for (name, value) in &root {
            match *name {
                gimli::DW_AT_high_pc => self.high_pc = self.high_pc(value, self.low_pc)?,
                gimli::DW_AT_ranges => self.ranges = self.ranges_offset(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The attributes of one entry.
    fn attributes(&self, offset: UnitOffset) -> Result<Vec<(gimli::DwAt, Value<'a>)>, DwarfError> {
        let mut entries = self.entries(offset)?;
        let mut attributes = Vec::new();
        if let Some(abbreviation) = entries.read_abbreviation()? {
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                attributes.push((attribute.name(), attribute.value()));
            }
        }
        Ok(attributes)
    }

    /// Entries from `offset` on.
    pub(super) fn entries(
        &self,
        offset: UnitOffset,
    ) -> Result<EntriesRaw<'_, Slice<'a>>, DwarfError> {
        Ok(self.header.entries_raw(&self.abbreviations, Some(offset))?)
    }

    /// The ranges of the whole unit; empty when it does not tell them.
    pub(super) fn own_ranges(&self) -> Result<Vec<(u64, u64)>, DwarfError> {
        if let Some(offset) = self.ranges {
            return self.range_list(offset);
        }
        Ok(match self.high_pc {
            Some(high_pc) if self.low_pc < high_pc => vec![(self.low_pc, high_pc)],
            _ => Vec::new(),
        })
    }

    /// An attribute that is an address, direct or by index.
    pub(super) fn address(&self, value: &Value<'a>) -> Result<Option<u64>, DwarfError> {
        match value {
            AttributeValue::Addr(address) => Ok(Some(*address)),
            AttributeValue::DebugAddrIndex(index) => self.indexed_address(index.0).map(Some),
            _ => Ok(None),
        }
    }

    fn indexed_address(&self, index: usize) -> Result<u64, DwarfError> {
        let size = self.header.address_size();
        let at = (index as u64).saturating_mul(u64::from(size));
        self.tables
            .addr
            .word(self.bases.addr.saturating_add(at), size)
    }

    /// `DW_AT_high_pc`, which may count from `low_pc`.
    pub(super) fn high_pc(
        &self,
        value: &Value<'a>,
        low_pc: u64,
    ) -> Result<Option<u64>, DwarfError> {
        Ok(match value {
            AttributeValue::Udata(size) => low_pc.checked_add(*size),
            value => self.address(value)?,
        })
    }

    /// Where the list of `DW_AT_ranges` is.
    pub(super) fn ranges_offset(&self, value: &Value<'a>) -> Result<Option<u64>, DwarfError> {
        Ok(match value {
            AttributeValue::RangeListsRef(offset) => {
                Some((offset.0 as u64).saturating_add(self.bases.gnu_ranges))
            }
            AttributeValue::DebugRngListsIndex(index) => {
                let size = self.header.format().word_size();
                let at = (index.0 as u64).saturating_mul(u64::from(size));
                let base = self.bases.rnglists;
                let offset = self.tables.rnglists.word(base.saturating_add(at), size)?;
                Some(base.saturating_add(offset))
            }
            _ => None,
        })
    }

    /// Reads a list of ranges: begin and end (exclusive), those that are not empty.
    pub(super) fn range_list(&self, offset: u64) -> Result<Vec<(u64, u64)>, DwarfError> {
        let version = self.header.version();
        let table = match version {
            ..=4 => &self.tables.ranges,
            _ => &self.tables.rnglists,
        };
        let entries = table.parse(offset, |bytes| {
            let lists = RangeLists::new(
                gimli::DebugRanges::new(bytes, LittleEndian),
                gimli::DebugRngLists::new(bytes, LittleEndian),
            );
            let mut raw = lists.raw_ranges(RangeListsOffset(0), self.header.encoding())?;
            let mut entries = Vec::new();
            while let Some(entry) = raw.next()? {
                if entries.len() < MAX_RANGES {
                    entries.push(entry);
                }
            }
            Ok(entries)
        })?;
        let mut base = self.low_pc;
        let mut ranges = Vec::new();
        for entry in entries {
            let (begin, end) = match entry {
                RawRngListEntry::BaseAddress { addr } => {
                    base = addr;
                    continue;
                }
                RawRngListEntry::BaseAddressx { addr } => {
                    base = self.indexed_address(addr.0)?;
                    continue;
                }
                RawRngListEntry::AddressOrOffsetPair { begin, end }
                | RawRngListEntry::OffsetPair { begin, end } => {
                    (base.wrapping_add(begin), base.wrapping_add(end))
                }
                RawRngListEntry::StartxEndx { begin, end } => {
                    (self.indexed_address(begin.0)?, self.indexed_address(end.0)?)
                }
                RawRngListEntry::StartxLength { begin, length } => {
                    let begin = self.indexed_address(begin.0)?;
                    (begin, begin.wrapping_add(length))
                }
                RawRngListEntry::StartEnd { begin, end } => (begin, end),
                RawRngListEntry::StartLength { begin, length } => {
                    (begin, begin.wrapping_add(length))
                }
            };
            if begin < end {
                ranges.push((begin, end));
            }
        }
        Ok(ranges)
    }

    /// An attribute that is a string.
    pub(super) fn text(&self, value: &Value<'a>) -> Result<Text, DwarfError> {
        if let AttributeValue::DebugStrOffsetsIndex(index) = value {
            let size = self.header.format().word_size();
            let at = (index.0 as u64).saturating_mul(u64::from(size));
            let at = self.bases.str_offsets.saturating_add(at);
            return Ok(Text::Str(self.tables.str_offsets.word(at, size)?));
        }
        Ok(Text::of(value))
    }
}

/// The header of the unit that begins with `bytes`.
pub(super) fn header(bytes: &[u8], offset: u64) -> Result<UnitHeader<Slice<'_>>, DwarfError> {
    let info = DebugInfo::new(bytes, LittleEndian);
    let eof = gimli::Error::OffsetOutOfBounds(offset);
    Ok(info.units().next()?.ok_or(eof)?)
}

/// The id in the header of a skeleton or of a unit that was split off; before DWARF 5 it is an
/// attribute.
pub(super) fn split_id(header: &UnitHeader<Slice<'_>>) -> Option<u64> {
    match header.type_() {
        UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id.0),
        _ => None,
    }
}

/// An attribute that is an offset in another section.
fn section_offset(value: &Value<'_>) -> Option<u64> {
    match value {
        AttributeValue::SecOffset(offset) => Some(*offset as u64),
        AttributeValue::DebugLineRef(offset) => Some(offset.0 as u64),
        AttributeValue::DebugAddrBase(offset) => Some(offset.0 as u64),
        AttributeValue::DebugStrOffsetsBase(offset) => Some(offset.0 as u64),
        AttributeValue::DebugRngListsBase(offset) => Some(offset.0 as u64),
        AttributeValue::RangeListsRef(offset) => Some(offset.0 as u64),
        _ => None,
    }
}
