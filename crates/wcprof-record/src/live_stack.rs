//! The target's stack memory, read while it runs: the rest of a stack that was copied too short.

use wcprof_host::read_memory;
use wcprof_types::{Avma, Pid};
use wcprof_unwind::{ReadError, StackMemory};

const CHUNK: usize = 4096;
/// Chunks read for one stack: 1 MiB.
const MAX_CHUNKS: usize = 256;

/// Stack memory, read in pages as it is asked for. Not only the mapping that the copy is of: a
/// signal handler's frames lie on a stack of their own, the interrupted ones on the thread's.
pub(crate) struct LiveStack {
    pid: Pid,
    page: u64,
    bytes: Vec<u8>,
    n_chunks: usize,
}

impl LiveStack {
    pub(crate) fn new(pid: Pid) -> Self {
        Self {
            pid,
            page: 0,
            bytes: Vec::new(),
            n_chunks: 0,
        }
    }
}

impl StackMemory for LiveStack {
    fn read(&mut self, address: u64) -> Result<u64, ReadError> {
        let page = address & !(CHUNK as u64 - 1);
        if page != self.page || self.bytes.is_empty() {
            if self.n_chunks == MAX_CHUNKS {
                return Err(ReadError::BeyondCopy);
            }
            self.n_chunks += 1;
            self.page = page;
            self.bytes.resize(CHUNK, 0);
            let n = read_memory(self.pid, Avma(page), &mut self.bytes).unwrap_or(0);
            self.bytes.truncate(n);
        }
        let offset = (address - page) as usize;
        self.bytes
            .get(offset..)
            .and_then(|b| b.first_chunk())
            .map(|b| u64::from_le_bytes(*b))
            .ok_or(ReadError::Unreadable)
    }

    fn searchable(&self) -> std::ops::Range<u64> {
        0..0
    }
}
