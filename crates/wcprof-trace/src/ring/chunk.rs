//! About a second of spans, packed, with what they refer to.

use std::mem::size_of;
use std::sync::Arc;

use wcprof_types::{CounterValue, TimeNs};
use zstd::bulk::{Compressor, Decompressor};

use super::table::IdSet;
use super::tables::add_place;
use crate::error::TraceError;
use crate::format::codec::{N_TABLES, Sizes};
use crate::format::span_reader::read_section;
use crate::format::spans::SpanWriter;
use crate::format::wire::Input;
use crate::model::{
    AccountsReading, CounterId, CounterReading, LockLook, LockOwner, Span, Stats, ThreadId,
};

/// Spans that are closed, as in a block of a file.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// One zstd frame of a section of spans; empty without spans.
    packed: Vec<u8>,
    raw_len: usize,
    pub(crate) facts: Facts,
}

/// What a chunk is about, beside its spans.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Counts of the recording when it began; its duration is then.
    pub(crate) before: Stats,
    /// Spans in it end no later.
    pub(crate) end: TimeNs,
    pub(crate) stacks: Vec<u32>,
    pub(crate) waits: Vec<u32>,
    pub(crate) threads: Vec<u32>,
    pub(crate) looks: Vec<LockLook>,
    pub(crate) moved: Vec<(ThreadId, TimeNs)>,
    pub(crate) n_skipped: u64,
    /// Each with all values.
    pub(crate) readings: Vec<CounterReading>,
    pub(crate) accounts: Vec<AccountsReading>,
}

impl Chunk {
    /// Hands over each span.
    pub(crate) fn for_each(
        &self,
        each: impl FnMut(Span) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        if self.packed.is_empty() {
            return Ok(());
        }
        let raw = Decompressor::new()
            .and_then(|mut zstd| zstd.decompress(&self.packed, self.raw_len))
            .map_err(TraceError::Read)?;
        let all = Sizes([usize::MAX; N_TABLES]);
        read_section(&mut Input(&raw), &all, each)?;
        Ok(())
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let facts = &self.facts;
        let owners = facts.looks.iter().map(|look| look.owners.capacity());
        let values = facts
            .readings
            .iter()
            .map(|reading| reading.values.capacity());
        let documents = facts.accounts.iter().map(|reading| reading.json.capacity());
        let ids = [&facts.stacks, &facts.waits, &facts.threads].map(Vec::capacity);
        size_of::<Self>()
            + self.packed.capacity()
            + ids.iter().sum::<usize>() * size_of::<u32>()
            + facts.looks.capacity() * size_of::<LockLook>()
            + owners.sum::<usize>() * size_of::<LockOwner>()
            + facts.moved.capacity() * size_of::<(ThreadId, TimeNs)>()
            + facts.readings.capacity() * size_of::<CounterReading>()
            + values.sum::<usize>() * size_of::<(CounterId, CounterValue)>()
            + facts.accounts.capacity() * size_of::<AccountsReading>()
            + documents.sum::<usize>()
    }
}

/// The chunk that is being filled.
#[derive(Default)]
pub(crate) struct OpenChunk {
    spans: SpanWriter,
    stacks: IdSet,
    waits: IdSet,
    /// Those of looks; those of spans are listed with them.
    threads: IdSet,
    facts: Facts,
}

impl OpenChunk {
    pub(crate) fn span(&mut self, span: &Span) {
        add_place((span.stack, span.wait), &mut self.stacks, &mut self.waits);
        self.facts.end = self.facts.end.max(span.end);
        self.spans.put(span);
    }

    pub(crate) fn look(&mut self, look: &LockLook) {
        for owner in &look.owners {
            self.threads.insert(owner.thread.0);
            add_place((owner.stack, owner.wait), &mut self.stacks, &mut self.waits);
        }
        self.facts.end = self.facts.end.max(look.until);
        self.facts.looks.push(look.clone());
    }

    pub(crate) fn moved(&mut self, thread: ThreadId, tick: TimeNs) {
        self.threads.insert(thread.0);
        self.facts.end = self.facts.end.max(tick);
        self.facts.moved.push((thread, tick));
    }

    pub(crate) fn reading(&mut self, reading: &CounterReading) {
        self.facts.end = self.facts.end.max(reading.time);
        self.facts.readings.push(reading.clone());
    }

    pub(crate) fn accounts(&mut self, reading: AccountsReading) {
        self.facts.end = self.facts.end.max(reading.time);
        self.facts.accounts.push(reading);
    }

    pub(crate) fn skipped(&mut self, n: u64) {
        self.facts.n_skipped = self.facts.n_skipped.saturating_add(n);
    }

    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// The chunk so far, and a new one begins, with these counts.
    pub(crate) fn close(
        &mut self,
        zstd: &mut Compressor<'static>,
        stats: &Stats,
    ) -> Result<Arc<Chunk>, TraceError> {
        let mut raw = Vec::with_capacity(self.spans.len() + 64);
        let threads = self.spans.threads().iter().map(|thread| thread.0);
        self.threads.extend(threads);
        self.spans.take_into(&mut raw);
        let mut packed = match raw.is_empty() {
            true => Vec::new(),
            false => zstd.compress(&raw).map_err(TraceError::Write)?,
        };
        packed.shrink_to_fit();
        let mut facts = std::mem::take(&mut self.facts);
        facts.end = facts.end.max(stats.duration);
        // Its spans may end later than the counts say: threads are observed after a tick's begin, and a
        // full chunk is closed before the counts are brought up to its time.
        let mut before = stats.clone();
        before.duration = facts.end;
        // Those of the recording tell as well.
        before.rate_changes = Vec::new();
        self.facts = Facts {
            before,
            end: facts.end,
            ..Facts::default()
        };
        facts.stacks = self.stacks.drain().collect();
        facts.waits = self.waits.drain().collect();
        facts.threads = self.threads.drain().collect();
        facts.looks.shrink_to_fit();
        facts.moved.shrink_to_fit();
        Ok(Arc::new(Chunk {
            packed,
            raw_len: raw.len(),
            facts,
        }))
    }
}
