//! What the units of a file are read with: its tables, and a limit of the work.
//!
//! A few bytes of a unit may refer to long lists, and millions of units to the same table. So each entry
//! of what is referred to is counted, and the sum is limited by the size of the file.

use std::sync::{Arc, Mutex, PoisonError};

use gimli::{Abbreviations, DebugAbbrev, DebugAbbrevOffset, EndianSlice, LittleEndian, Reader};

use crate::allowance::Allowance;
use crate::elf::ElfFile;
use crate::error::{DwarfError, Failures};
use crate::files::{FindSection, expanded_size};
use crate::table::Table;
use crate::tables::Tables;

/// Largest table of abbreviations, bytes. Real ones have some 10 KiB; in memory they take up to
/// thirty times as much.
const MAX_ABBREVIATIONS: u64 = 1 << 20;
/// Steps that a read of a single number counts as: it may be a system call.
const INDEXED_STEPS: usize = 32;

/// Reads units of one file on one thread.
pub(crate) struct UnitReader<'a> {
    pub(crate) tables: &'a Tables<'a>,
    steps: Allowance,
    /// The abbreviations that were read last, and where they are: units in a row may share them.
    last: Mutex<Option<(u64, Arc<Abbreviations>)>>,
}

impl<'a> UnitReader<'a> {
    /// Reads units of `elf`, whose tables are `tables`, for so many addresses. `find` finds its sections.
    pub(crate) fn new(
        (elf, find): (&ElfFile, FindSection),
        tables: &'a Tables<'a>,
        n_addresses: usize,
    ) -> Result<Self, DwarfError> {
        Ok(Self {
            tables,
            steps: Allowance::steps(expanded_size(elf, find)?, n_addresses),
            last: Mutex::default(),
        })
    }

    /// Counts steps; fails once there were too many.
    pub(crate) fn work(&self, n_steps: usize) -> Result<(), DwarfError> {
        match self.steps.take(n_steps as u64) {
            true => Ok(()),
            false => Err(self.error()),
        }
    }

    /// The number of 4 or 8 bytes at an index from `base` on.
    pub(crate) fn indexed(
        &self,
        table: &Table<'_>,
        base: u64,
        index: usize,
        size: u8,
    ) -> Result<u64, DwarfError> {
        self.work(INDEXED_STEPS)?;
        let at = (index as u64).saturating_mul(u64::from(size));
        table.word(base.saturating_add(at), size)
    }

    /// Notes that `n_addresses` may have been lost to the limit, if it was met.
    pub(crate) fn note_limit(&self, n_addresses: usize, failures: &mut Failures) {
        if self.steps.n_refused() > 0 {
            failures.add(n_addresses, self.error());
        }
    }

    fn error(&self) -> DwarfError {
        let limit = self.steps.limit;
        DwarfError::Work { limit }
    }

    /// The table of abbreviations at `offset`.
    pub(crate) fn abbreviations(&self, offset: u64) -> Result<Arc<Abbreviations>, DwarfError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, abbreviations)) = &*last
            && *at == offset
        {
            return Ok(Arc::clone(abbreviations));
        }
        let table = &self.tables.abbrev;
        let abbreviations = table.parse(offset, MAX_ABBREVIATIONS, |bytes| {
            let size = table_size(bytes);
            self.work(*size.as_ref().unwrap_or(&bytes.len()))?;
            let bytes = bytes.get(..size?).unwrap_or(bytes);
            let table = DebugAbbrev::new(bytes, LittleEndian);
            Ok(table.abbreviations(DebugAbbrevOffset(0))?)
        })?;
        let abbreviations = Arc::new(abbreviations);
        *last = Some((offset, Arc::clone(&abbreviations)));
        Ok(abbreviations)
    }
}

/// Bytes of a table of abbreviations (DWARF 5, 7.5.3). The last one of a section may lack its end.
fn table_size(bytes: &[u8]) -> Result<usize, gimli::Error> {
    let mut rest = EndianSlice::new(bytes, LittleEndian);
    while !rest.is_empty() && rest.read_uleb128()? != 0 {
        // Tag, and whether it has children.
        rest.skip_leb128()?;
        rest.skip(1)?;
        loop {
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(gimli::DW_FORM_implicit_const.0) {
                rest.skip_leb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(bytes.len() - rest.len())
}
