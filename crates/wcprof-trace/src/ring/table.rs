//! Interned values whose ids are used again once nothing refers to them.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::mem::size_of;

use foldhash::fast::RandomState as FastState;

use crate::error::TraceError;
use crate::format::entries::Entry;

/// Ids that something refers to.
pub(crate) type IdSet = HashSet<u32, FastState>;

/// Values by small ids, and ids by value.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
    ids: HashMap<T, u32, FastState>,
    /// Bytes of all texts of values.
    texts: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
            ids: HashMap::default(),
            texts: 0,
        }
    }
}

impl<T: Entry + Eq + Hash> Table<T> {
    /// The id of a value.
    pub(crate) fn intern(&mut self, value: T) -> Result<u32, TraceError> {
        if let Some(&id) = self.ids.get(&value) {
            return Ok(id);
        }
        T::TABLE.check_len(self.ids.len() + 1)?;
        self.texts += value.text_bytes();
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

    pub(crate) fn known(&self, value: &T) -> Option<u32> {
        self.ids.get(value).copied()
    }

    pub(crate) fn has_room(&self) -> bool {
        T::TABLE.has_room(self.ids.len())
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)?.as_ref()
    }

    /// The same values, to be read by id.
    pub(crate) fn copy(&self) -> Self {
        Self {
            values: self.values.clone(),
            ..Self::default()
        }
    }

    /// Ids given out, those that are free again among them.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Forgets the values to which nothing refers.
    pub(crate) fn retain(&mut self, used: &IdSet) {
        for (id, value) in (0..).zip(&mut self.values) {
            if !used.contains(&id)
                && let Some(gone) = value.take()
            {
                self.texts -= gone.text_bytes();
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
            + 2 * self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Frame;

    /// Check that equal values have one id, that ids of values that went are given out again, the
    /// smallest first, and that those of the others stay.
    #[test]
    fn ids_again() {
        let mut table = Table::default();
        let frame = |name: &str| Frame::Kernel(name.to_owned());
        let mut id = |name: &str| table.intern(frame(name)).unwrap();
        assert_eq!([id("a"), id("b"), id("c"), id("b")], [0, 1, 2, 1]);
        table.retain(&IdSet::from_iter([2]));
        assert_eq!(table.get(2), Some(&frame("c")));
        assert_eq!(table.get(0), None);
        let mut id = |name: &str| table.intern(frame(name)).unwrap();
        assert_eq!([id("c"), id("x"), id("a"), id("y")], [2, 0, 1, 3]);
        assert_eq!(table.texts, 4);
    }
}
