//! What was added to a trace since its last blocks, encoded; to the sections of the next ones.

use std::collections::BTreeMap;

use crate::error::Malformed;
use crate::format::codec::Table;
use crate::format::spans::SpanWriter;
use crate::format::wire::put;
use crate::format::{entries, put_section, section};
use crate::limits::STRING_BYTES;
use crate::model::Header;

/// Sections of a block of tables, in their order: what refers to ids comes after the tables.
const ORDER: [u8; 17] = [
    section::PROCESSES,
    section::MODULES,
    section::THREADS,
    section::FRAMES,
    section::NODES,
    section::STACKS,
    section::WAITS,
    section::LOCKS,
    section::CGROUPS,
    section::BIRTHS,
    section::PROCESS_ENDS,
    section::FOLDED,
    section::COUNTERS,
    section::SOURCES,
    section::RECORDED_AGAIN,
    section::THREAD_NAMES,
    section::THREAD_FACTS,
];

/// Encoded content that is in no block yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) header: Option<Header>,
    tables: BTreeMap<u8, NewEntries>,
    facts: BTreeMap<u8, Vec<u8>>,
    pub(crate) spans: SpanWriter,
    pub(crate) stats: Vec<u8>,
    /// Whole sections.
    pub(crate) setups: Vec<u8>,
    /// Bytes of tables that are in blocks, and what strings take beside theirs.
    pub(crate) packed: usize,
}

/// Entries of a table that are in no block yet.
#[derive(Debug, Default)]
struct NewEntries {
    n_before: u64,
    n: u64,
    bytes: Vec<u8>,
}

impl Pending {
    /// Nothing but the header.
    pub(crate) fn new(header: Header) -> Self {
        Self {
            header: Some(header),
            ..Self::default()
        }
    }

    /// Adds the entry of a table that `put` writes.
    pub(crate) fn add(
        &mut self,
        table: Table,
        put: impl FnOnce(&mut Vec<u8>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let table = self.tables.entry(table.tag()).or_default();
        put(&mut table.bytes)?;
        table.n += 1;
        Ok(())
    }

    /// Where to encode more of another section, by its tag.
    pub(crate) fn section(&mut self, tag: u8) -> &mut Vec<u8> {
        self.facts.entry(tag).or_default()
    }

    /// Strings of lists were added.
    pub(crate) fn add_strings(&mut self, n: usize) {
        self.packed += n * STRING_BYTES;
    }

    /// Bytes, about; counts and what is written once are left out.
    pub(crate) fn len(&self) -> usize {
        let tables = self.tables.values().map(|table| table.bytes.len());
        let facts = self.facts.values().map(Vec::len);
        tables.chain(facts).sum::<usize>() + self.spans.len() + self.setups.len()
    }

    /// Bytes of tables, as the reader counts them: those that are in blocks, and those that will be.
    fn table_bytes(&self) -> usize {
        let tables = self.tables.values().map(|table| table.bytes.len());
        let facts = self.facts.iter();
        let facts = facts.filter(|(tag, _)| section::is_of_tables(**tag));
        let facts = facts.map(|(_, facts)| facts.len());
        self.packed + tables.chain(facts).sum::<usize>() + self.setups.len()
    }

    /// The sections of a block, in which all of it but the spans is then. None if there is nothing else.
    pub(crate) fn take_sections(&mut self) -> Result<Vec<u8>, Malformed> {
        self.packed = self.table_bytes();
        let mut out = Vec::with_capacity(self.len() + 1024);
        let mut content = Vec::new();
        if let Some(header) = self.header.take() {
            entries::put_header(&mut content, &header)?;
            put_section(&mut out, section::HEADER, &content);
        }
        for tag in ORDER {
            if let Some(table) = self.tables.get_mut(&tag).filter(|table| table.n > 0) {
                content.clear();
                put(&mut content, table.n_before);
                put(&mut content, table.n);
                content.append(&mut table.bytes);
                put_section(&mut out, tag, &content);
                table.n_before += std::mem::take(&mut table.n);
            }
            if let Some(facts) = self.facts.get_mut(&tag) {
                put_section(&mut out, tag, facts);
                facts.clear();
            }
        }
        put_section(&mut out, section::STATS, &self.stats);
        self.stats.clear();
        out.append(&mut self.setups);
        Ok(out)
    }
}
