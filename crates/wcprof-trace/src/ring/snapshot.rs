//! What a ring held at a moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use wcprof_types::{TimeNs, Wait};

use super::chunk::Chunk;
use super::{Cut, RingMemory, RingProcess, RingThread};
use crate::error::TraceError;
use crate::model::{Frame, Header, Module, ModuleId, ProcessId, Span, Stack, StackNode, Stats};

/// What a ring held at a moment. It shares the packed spans with the ring, and is read on another
/// thread than that which records.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) header: Header,
    pub(super) setups: Vec<String>,
    pub(super) processes: BTreeMap<ProcessId, RingProcess>,
    pub(super) modules: BTreeMap<ModuleId, Module>,
    pub(super) threads: Vec<Option<RingThread>>,
    pub(super) frames: Vec<Option<Frame>>,
    pub(super) nodes: Vec<Option<StackNode>>,
    pub(super) stacks: Vec<Option<Stack>>,
    pub(super) waits: Vec<Option<Wait>>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) start: TimeNs,
    pub(super) rest: Vec<Span>,
    pub(super) stats: Stats,
    pub(super) memory: RingMemory,
}

impl Snapshot {
    /// When what it holds begins, since the recording began.
    pub fn start(&self) -> TimeNs {
        self.start
    }

    /// When it was taken.
    pub fn end(&self) -> TimeNs {
        self.stats.duration
    }

    /// The ring's memory then.
    pub fn memory(&self) -> RingMemory {
        self.memory
    }

    /// The part from `from` on (or from its begin) as a trace of its own, whose time 0 that is.
    ///
    /// # Errors
    /// When packed spans can not be read, which would be a bug or broken memory.
    pub fn cut(&self, from: TimeNs) -> Result<Cut<'_>, TraceError> {
        Cut::new(self, from.max(self.start))
    }
}
