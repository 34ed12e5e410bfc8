//! What a ring held at a moment.

use std::sync::Arc;

use wcprof_types::TimeNs;

use super::chunk::Chunk;
use super::memory::RingMemory;
use super::tables::RingTables;
use crate::model::{AccountsReading, Header, ProcessId, Span, Stats, ThreadId};

/// What a ring held at a moment. It shares the packed spans with the ring, and is read on another
/// thread than that which records.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) header: Header,
    pub(super) setups: Vec<String>,
    pub(super) tables: RingTables,
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) start: TimeNs,
    pub(super) rest: Vec<Span>,
    pub(super) stats: Stats,
    pub(super) memory: RingMemory,
}

impl Snapshot {
    /// What is known of the recording since it began.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// When what it holds begins, since the recording began.
    pub fn start(&self) -> TimeNs {
        self.start
    }

    /// When it was taken.
    pub fn end(&self) -> TimeNs {
        self.stats.duration
    }

    /// The counts of the whole recording until then.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Threads that it knows, with their processes and how many ticks saw each since the recording began.
    pub fn observations(&self) -> impl Iterator<Item = (ThreadId, ProcessId, u64)> {
        let slots = (0..).map(ThreadId).zip(self.tables.threads.iter());
        slots.filter_map(|(id, known)| {
            let thread = &known.as_ref()?.thread;
            Some((id, thread.process, thread.n_ticks))
        })
    }

    /// What the kernel had accounted, by time since the recording began.
    pub fn accounts(&self) -> impl DoubleEndedIterator<Item = &AccountsReading> {
        self.chunks.iter().flat_map(|chunk| &chunk.facts.accounts)
    }

    /// The ring's memory then.
    pub fn memory(&self) -> RingMemory {
        self.memory
    }
}
