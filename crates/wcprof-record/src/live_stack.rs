//! The target's memory, read while it runs: the rest of a stack that was copied too short, and
//! code bytes that prove a return address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use wcprof_host::read_memory;
use wcprof_types::{Avma, Pid};
use wcprof_unwind::{ReadError, StackMemory, TextMemory};

const CHUNK: usize = 4096;
/// Chunks read for one stack: 1 MiB.
const MAX_CHUNKS: usize = 256;
/// Pages of code read for one stack: 4 MiB.
const MAX_TEXT_PAGES: usize = 1024;

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

/// Code of the target, read in pages that are kept for one stack.
pub(crate) struct LiveText {
    pid: Pid,
    pages: HashMap<u64, Vec<u8>>,
}

impl LiveText {
    pub(crate) fn new(pid: Pid) -> Self {
        Self {
            pid,
            pages: HashMap::new(),
        }
    }

    /// What can be read of a page; nothing beyond the limit.
    fn page(&mut self, page: u64) -> &[u8] {
        let has_room = self.pages.len() < MAX_TEXT_PAGES;
        match self.pages.entry(page) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !has_room => &[],
            Entry::Vacant(new) => {
                let mut bytes = vec![0; CHUNK];
                let n = read_memory(self.pid, Avma(page), &mut bytes).unwrap_or(0);
                bytes.truncate(n);
                new.insert(bytes)
            }
        }
    }
}

impl TextMemory for LiveText {
    fn read_text(&mut self, address: Avma, bytes: &mut [u8]) -> bool {
        let (mut address, mut rest) = (address.0, bytes);
        while !rest.is_empty() {
            let offset = (address % CHUNK as u64) as usize;
            let n = rest.len().min(CHUNK - offset);
            let page = self.page(address - offset as u64);
            let Some(found) = page.get(offset..offset + n) else {
                return false;
            };
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(found);
            (address, rest) = (address.wrapping_add(n as u64), later);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that code is read across pages and as far as it goes, and no more pages than the limit.
    #[test]
    fn text() {
        let memory: Vec<u8> = (0..4 * CHUNK).map(|i| (i / 3) as u8).collect();
        let mut text = LiveText::new(Pid(std::process::id() as i32));
        let start = memory.as_ptr() as u64;
        for at in 0..2 * CHUNK {
            let mut bytes = [0; 7];
            assert!(text.read_text(Avma(start + at as u64), &mut bytes));
            assert_eq!(bytes, memory[at..at + 7]);
        }
        assert!(text.pages.len() <= 4);
        assert!(!text.read_text(Avma(u64::MAX - 2), &mut [0; 7]));
        for page in 0..2 * MAX_TEXT_PAGES as u64 {
            assert!(!text.read_text(Avma(page << 50), &mut [0; 7]));
        }
        assert_eq!(text.pages.len(), MAX_TEXT_PAGES);
        assert!(text.read_text(Avma(start), &mut [0; 7]), "it is known");
        assert!(!text.read_text(Avma(start + (3 * CHUNK) as u64), &mut [0; 7]));
    }
}
