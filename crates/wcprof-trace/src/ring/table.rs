//! Interned values whose ids are used again once nothing refers to them.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::size_of;

use foldhash::fast::RandomState as FastState;
use wcprof_types::Wait;

use crate::error::TraceError;
use crate::model::{Frame, Stack, StackNode};
use crate::v1::entries::Entry;

/// What a [`Table`] can hold.
pub(crate) trait Interned: Clone + Eq + Hash + Entry {
    /// Bytes of memory beside the value itself.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Interned for StackNode {}

impl Interned for Stack {}

impl Interned for Frame {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Kernel(name) => name.len(),
            Self::Native { .. } | Self::Unmapped(_) | Self::KernelCode(_) => 0,
        }
    }
}

impl Interned for Wait {
    fn heap_bytes(&self) -> usize {
        self.kernel.len() + self.fd.as_ref().map_or(0, |fd| fd.path.len())
    }
}

/// Values by small ids, and ids by value.
#[derive(Debug)]
pub(crate) struct Table<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
    ids: HashMap<T, u32, FastState>,
    /// Bytes that all values have elsewhere.
    heap: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
            ids: HashMap::default(),
            heap: 0,
        }
    }
}

impl<T: Interned> Table<T> {
    /// The id of a value.
    pub(crate) fn intern(&mut self, value: T) -> Result<u32, TraceError> {
        if let Some(&id) = self.ids.get(&value) {
            return Ok(id);
        }
        T::TABLE
            .check_len(self.ids.len() + 1)
            .map_err(TraceError::Invalid)?;
        self.heap += value.heap_bytes();
        let id = self.free.pop().unwrap_or_else(|| {
            let len = self.values.len();
            if len == self.values.capacity() {
                // Memory is limited and counted: doubling would waste half of it.
                self.values.reserve_exact((len / 8).max(64));
            }
            self.values.push(None);
            // Limits are far below 2^32.
            len as u32
        });
        self.values[id as usize] = Some(value.clone());
        self.ids.insert(value, id);
        Ok(id)
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)?.as_ref()
    }

    /// By id, with holes.
    pub(crate) fn values(&self) -> &[Option<T>] {
        &self.values
    }

    /// Keeps the values whose ids are marked.
    pub(crate) fn keep(&mut self, marks: &Marks) {
        for (id, value) in (0..).zip(&mut self.values) {
            if !marks.has(id)
                && let Some(gone) = value.take()
            {
                self.heap -= gone.heap_bytes();
                self.ids.remove(&gone);
            }
        }
        while self.values.last().is_some_and(Option::is_none) {
            self.values.pop();
        }
        self.free = (0..)
            .zip(&self.values)
            .filter_map(|(id, value)| value.is_none().then_some(id))
            .collect();
        // The smallest first: tables stay dense.
        self.free.reverse();
        // What was dropped to make room must give it back.
        self.free.shrink_to_fit();
        if self.values.capacity() > self.values.len() + self.values.len() / 4 {
            self.values.shrink_to_fit();
        }
        if self.ids.capacity() > 2 * self.ids.len() {
            self.ids.shrink_to_fit();
        }
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<Option<T>>()
            + self.ids.capacity() * (size_of::<(T, u32)>() + 1)
            + self.free.capacity() * size_of::<u32>()
            + 2 * self.heap
    }
}

/// A set of ids.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// False when it was marked already.
    pub(crate) fn mark(&mut self, id: u32) -> bool {
        let (word, bit) = ((id / 64) as usize, 1 << (id % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let before = self.0[word];
        self.0[word] |= bit;
        before & bit == 0
    }

    pub(crate) fn mark_all(&mut self, ids: &[u32]) {
        for &id in ids {
            self.mark(id);
        }
    }

    pub(crate) fn has(&self, id: u32) -> bool {
        let word = self.0.get((id / 64) as usize).copied().unwrap_or(0);
        word >> (id % 64) & 1 == 1
    }

    /// Calls `each` with every marked id, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..)
            .zip(&self.0)
            .filter(|(_, word)| **word != 0)
            .flat_map(|(at, word)| {
                (0..64)
                    .filter(move |bit| word >> bit & 1 == 1)
                    .map(move |bit| at * 64 + bit)
            })
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal values have one id, that ids of values that went are given out again, the
    /// smallest first, and that those of the others stay.
    #[test]
    fn ids_again() {
        let mut table = Table::default();
        let frame = |name: &str| Frame::Kernel(name.to_owned());
        let mut id = |name: &str| table.intern(frame(name)).unwrap();
        assert_eq!([id("a"), id("b"), id("c"), id("b")], [0, 1, 2, 1]);
        let mut marks = Marks::default();
        assert!(marks.mark(2) && !marks.mark(2));
        table.keep(&marks);
        assert_eq!(table.get(2), Some(&frame("c")));
        assert_eq!(table.get(0), None);
        let mut id = |name: &str| table.intern(frame(name)).unwrap();
        assert_eq!([id("c"), id("x"), id("a"), id("y")], [2, 0, 1, 3]);
        assert_eq!(table.heap, 4);
    }

    /// Check the order of marked ids across words.
    #[test]
    fn marks() {
        let mut marks = Marks::default();
        for id in [130, 0, 63, 64] {
            marks.mark(id);
        }
        assert_eq!(marks.ids().collect::<Vec<_>>(), [0, 63, 64, 130]);
        marks.clear();
        assert_eq!(marks.ids().count(), 0);
    }
}
