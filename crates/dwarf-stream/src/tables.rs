//! The sections that entries refer to by offset, opened for random access.

use std::sync::Arc;

use gimli::SectionId;

use crate::budget::Shares;
use crate::elf::ElfFile;
use crate::error::DwarfError;
use crate::files::{section_of, split_section_of};
use crate::table::Table;

/// The sections that entries refer to by offset, other than strings.
#[derive(Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) abbrev: Table<'a>,
    /// Of the linked file, also for units that were split off.
    pub(crate) addr: Arc<Table<'a>>,
    /// DWARF 4 and before; likewise.
    pub(crate) ranges: Arc<Table<'a>>,
    /// DWARF 5.
    pub(crate) rnglists: Table<'a>,
    pub(crate) str_offsets: Table<'a>,
}

impl<'a> Tables<'a> {
    /// Those of a linked file.
    pub(crate) fn open(elf: &'a ElfFile, shares: &Shares<'_>) -> Result<Self, DwarfError> {
        let mut room = shares.tables;
        let mut open = |id| Table::open(elf, section_of(elf, id), &mut room, shares.new_file);
        Ok(Self {
            abbrev: open(SectionId::DebugAbbrev)?,
            addr: Arc::new(open(SectionId::DebugAddr)?),
            ranges: Arc::new(open(SectionId::DebugRanges)?),
            rnglists: open(SectionId::DebugRngLists)?,
            str_offsets: open(SectionId::DebugStrOffsets)?,
        })
    }

    /// Those of a split file, some of which are the linked file's.
    pub(crate) fn open_split(
        elf: &'a ElfFile,
        linked: &Self,
        shares: &Shares<'_>,
    ) -> Result<Self, DwarfError> {
        // Half, since those of the linked file are open, too.
        let mut room = shares.tables / 2;
        let mut open = |id| Table::open(elf, split_section_of(elf, id), &mut room, shares.new_file);
        Ok(Self {
            abbrev: open(SectionId::DebugAbbrev)?,
            addr: Arc::clone(&linked.addr),
            ranges: Arc::clone(&linked.ranges),
            rnglists: open(SectionId::DebugRngLists)?,
            str_offsets: open(SectionId::DebugStrOffsets)?,
        })
    }
}
