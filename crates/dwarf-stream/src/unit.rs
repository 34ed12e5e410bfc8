//! One unit of `.debug_info`: its header, its root entry, and what its attributes refer to.

use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugInfo, DwAt, DwLang, EntriesRaw, LittleEndian, RangeLists,
    RangeListsOffset, RawRngListEntry, UnitHeader, UnitOffset, UnitType,
};

use crate::error::DwarfError;
use crate::text::{Slice, Text, Value};
use crate::unit_reader::UnitReader;
use crate::wanted::{Positions, Wanted};

/// Largest list of ranges, bytes.
const MAX_LIST: u64 = 16 << 20;

/// Steps that a range counts as: it is searched among the addresses.
const RANGE_STEPS: usize = 8;

/// A unit's bytes with what is needed to read its entries.
pub(crate) struct Unit<'a> {
    /// Where it begins in `.debug_info`.
    pub(crate) offset: u64,
    pub(crate) header: UnitHeader<Slice<'a>>,
    abbreviations: Arc<Abbreviations>,
    pub(crate) reader: &'a UnitReader<'a>,
    ranges: UnitRanges,
    bases: Bases,
    pub(crate) line_program: Option<u64>,
    pub(crate) comp_dir: Text,
    /// Written in C++, by `DW_AT_language`.
    pub(crate) is_cpp: bool,
    /// Identifies a skeleton and the unit that was split off it.
    pub(crate) dwo_id: Option<u64>,
    /// File of the unit that was split off.
    pub(crate) dwo_name: Text,
}

/// What a unit that was split off takes from its skeleton.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Inherited {
    low_pc: u64,
    addr: u64,
    gnu_ranges: u64,
}

/// Where the parts of a split unit begin in the tables of its file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) abbrev: u64,
    pub(crate) str_offsets: u64,
    pub(crate) rnglists: u64,
}

/// Where a unit's code is.
#[derive(Copy, Clone, Default)]
struct UnitRanges {
    low_pc: u64,
    high_pc: Option<u64>,
    /// Offset of its list of ranges.
    list: Option<u64>,
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
    /// Reads header and root entry. `bytes` are the unit's, or its start with a length to match.
    /// `split` is for a unit that was split off: what it has from its skeleton, and where it is in the
    /// tables of its file.
    pub(crate) fn parse(
        bytes: &'a [u8],
        offset: u64,
        reader: &'a UnitReader<'a>,
        split: Option<(Inherited, Parts)>,
    ) -> Result<Self, DwarfError> {
        let header = header(bytes, offset)?;
        let (inherited, parts) = split.unwrap_or_default();
        let at = (header.debug_abbrev_offset().0 as u64).saturating_add(parts.abbrev);
        let abbreviations = reader.abbreviations(at)?;
        let format = u64::from(header.format().word_size());
        // Behind the header of the section's first part, where no attribute says it.
        let (str_offsets, rnglists) = match header.version() {
            ..=4 => (0, 0),
            _ => (2 * format, 2 * format + 4),
        };
        let mut unit = Self {
            offset,
            header,
            abbreviations,
            reader,
            ranges: UnitRanges::default(),
            bases: Bases {
                addr: split.map_or(8, |_| inherited.addr),
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
        unit.ranges.low_pc = inherited.low_pc;
        unit.read_root()?;
        Ok(unit)
    }

    /// What the unit that is split off this one takes from it.
    pub(crate) fn inherited(&self) -> Inherited {
        Inherited {
            low_pc: self.ranges.low_pc,
            addr: self.bases.addr,
            gnu_ranges: self.bases.split_gnu_ranges,
        }
    }

    fn read_root(&mut self) -> Result<(), DwarfError> {
        let root = self.attributes(self.header.root_offset())?;
        let find = |name| {
            root.iter()
                .find(|(found, _)| *found == name)
                .map(|(_, v)| v)
        };
        let offset = |name| find(name).and_then(section_offset);
        let text = |unit: &Self, name| find(name).map(|value| unit.text(value)).transpose();
        // Bases first: the other attributes may be counted from them.
        let addr = offset(gimli::DW_AT_addr_base).or_else(|| offset(gimli::DW_AT_GNU_addr_base));
        let bases = &mut self.bases;
        bases.addr = addr.unwrap_or(bases.addr);
        bases.str_offsets = offset(gimli::DW_AT_str_offsets_base).unwrap_or(bases.str_offsets);
        bases.rnglists = offset(gimli::DW_AT_rnglists_base).unwrap_or(bases.rnglists);
        bases.split_gnu_ranges = offset(gimli::DW_AT_GNU_ranges_base).unwrap_or(0);
        if let Some(AttributeValue::DwoId(id)) = find(gimli::DW_AT_GNU_dwo_id) {
            self.dwo_id = Some(id.0);
        }
        if let Some(value) = find(gimli::DW_AT_low_pc) {
            self.ranges.low_pc = self.address(value)?.unwrap_or(self.ranges.low_pc);
        }
        if let Some(value) = find(gimli::DW_AT_high_pc) {
            self.ranges.high_pc = self.high_pc(value, self.ranges.low_pc)?;
        }
        if let Some(value) = find(gimli::DW_AT_ranges) {
            self.ranges.list = self.ranges_offset(value)?;
        }
        self.line_program = offset(gimli::DW_AT_stmt_list);
        self.comp_dir = text(self, gimli::DW_AT_comp_dir)?.unwrap_or_default();
        self.dwo_name = match text(self, gimli::DW_AT_dwo_name)? {
            Some(name) => name,
            None => text(self, gimli::DW_AT_GNU_dwo_name)?.unwrap_or_default(),
        };
        self.is_cpp = matches!(find(gimli::DW_AT_language), Some(AttributeValue::Language(language)) if is_cpp(*language));
        Ok(())
    }

    /// The attributes of one entry.
    pub(crate) fn attributes(&self, at: UnitOffset) -> Result<Vec<(DwAt, Value<'a>)>, DwarfError> {
        let mut entries = self.entries(at)?;
        let mut attributes = Vec::new();
        if let Some(abbreviation) = entries.read_abbreviation()? {
            self.reader.work(abbreviation.attributes().len())?;
            for spec in abbreviation.attributes() {
                let attribute = entries.read_attribute(*spec)?;
                attributes.push((attribute.name(), attribute.value()));
            }
        }
        Ok(attributes)
    }

    /// Entries from `offset` on.
    pub(crate) fn entries(
        &self,
        offset: UnitOffset,
    ) -> Result<EntriesRaw<'_, Slice<'a>>, DwarfError> {
        Ok(self.header.entries_raw(&self.abbreviations, Some(offset))?)
    }

    /// Those of the sorted `wanted` that lie in the ranges of the whole unit; none when it does not state
    /// them.
    pub(crate) fn own_positions(&self, wanted: &[Wanted]) -> Result<Positions, DwarfError> {
        let UnitRanges {
            low_pc,
            high_pc,
            list,
        } = self.ranges;
        self.positions(list, (Some(low_pc), high_pc), wanted)
    }

    /// Those of the sorted `wanted` that lie in a list of ranges, or from `low_pc` to `high_pc`.
    pub(crate) fn positions(
        &self,
        list: Option<u64>,
        bounds: (Option<u64>, Option<u64>),
        wanted: &[Wanted],
    ) -> Result<Positions, DwarfError> {
        if let Some(offset) = list {
            return self.listed(offset, wanted);
        }
        let mut positions = Positions::default();
        if let (Some(begin), Some(end)) = bounds {
            positions.add(wanted, begin, end);
        }
        Ok(positions)
    }

    /// An attribute that is an address, direct or by index.
    pub(crate) fn address(&self, value: &Value<'a>) -> Result<Option<u64>, DwarfError> {
        match value {
            AttributeValue::Addr(address) => Ok(Some(*address)),
            AttributeValue::DebugAddrIndex(index) => self.indexed_address(index.0).map(Some),
            _ => Ok(None),
        }
    }

    fn indexed_address(&self, index: usize) -> Result<u64, DwarfError> {
        let size = self.header.address_size();
        let at = (index as u64).saturating_mul(u64::from(size));
        self.reader
            .tables
            .addr
            .word(self.bases.addr.saturating_add(at), size)
    }

    /// `DW_AT_high_pc`, which may count from `low_pc`.
    pub(crate) fn high_pc(
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
    pub(crate) fn ranges_offset(&self, value: &Value<'a>) -> Result<Option<u64>, DwarfError> {
        Ok(match value {
            AttributeValue::RangeListsRef(offset) => {
                Some((offset.0 as u64).saturating_add(self.bases.gnu_ranges))
            }
            AttributeValue::DebugRngListsIndex(index) => {
                let table = &self.reader.tables.rnglists;
                let size = self.header.format().word_size();
                let base = self.bases.rnglists;
                let offset = self.reader.indexed(table, base, index.0, size)?;
                Some(base.saturating_add(offset))
            }
            _ => None,
        })
    }

    /// Those of the sorted `wanted` that lie in the ranges listed at `offset`.
    fn listed(&self, offset: u64, wanted: &[Wanted]) -> Result<Positions, DwarfError> {
        let version = self.header.version();
        let table = match version {
            ..=4 => &self.reader.tables.ranges,
            _ => &self.reader.tables.rnglists,
        };
        table.parse(offset, MAX_LIST, |bytes| {
            let lists = RangeLists::new(
                gimli::DebugRanges::new(bytes, LittleEndian),
                gimli::DebugRngLists::new(bytes, LittleEndian),
            );
            let mut entries = lists.raw_ranges(RangeListsOffset(0), self.header.encoding())?;
            let mut base = self.ranges.low_pc;
            let mut positions = Positions::default();
            while let Some(entry) = entries.next()? {
                self.reader.work(RANGE_STEPS)?;
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
                positions.add(wanted, begin, end);
            }
            Ok(positions)
        })
    }

    /// An attribute that is a string.
    pub(crate) fn text(&self, value: &Value<'a>) -> Result<Text, DwarfError> {
        if let AttributeValue::DebugStrOffsetsIndex(index) = value {
            let table = &self.reader.tables.str_offsets;
            let size = self.header.format().word_size();
            let base = self.bases.str_offsets;
            let offset = self.reader.indexed(table, base, index.0, size)?;
            return Ok(Text::Str(offset));
        }
        Ok(Text::new(value))
    }
}

fn is_cpp(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
}

/// The header of the unit that begins with `bytes`.
pub(crate) fn header(bytes: &[u8], offset: u64) -> Result<UnitHeader<Slice<'_>>, DwarfError> {
    let info = DebugInfo::new(bytes, LittleEndian);
    let eof = gimli::Error::OffsetOutOfBounds(offset);
    Ok(info.units().next()?.ok_or(eof)?)
}

/// The id in the header of a skeleton or of a unit that was split off; before DWARF 5 it is an
/// attribute.
pub(crate) fn split_id(header: &UnitHeader<Slice<'_>>) -> Option<u64> {
    match header.type_() {
        UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id.0),
        _ => None,
    }
}

/// An attribute that is an offset in another section.
fn section_offset(value: &Value<'_>) -> Option<u64> {
    match value {
        AttributeValue::SecOffset(offset) => Some(*offset),
        AttributeValue::DebugLineRef(offset) => Some(offset.0),
        AttributeValue::DebugAddrBase(offset) => Some(offset.0),
        AttributeValue::DebugStrOffsetsBase(offset) => Some(offset.0),
        AttributeValue::DebugRngListsBase(offset) => Some(offset.0),
        AttributeValue::RangeListsRef(offset) => Some(offset.0),
        _ => None,
    }
    .map(|offset| offset as u64)
}
