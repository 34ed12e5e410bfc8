//! What is known of spans that have thread, state, wait and stack in common: a small table for each
//! thread, because spans are added thread by thread, and what a thread does repeats.

use std::hash::BuildHasher;

use wcprof_trace::FastState;
use wcprof_trace::model::{Span, StackId, ThreadId, WaitId};
use wcprof_types::{ThreadState, TimeNs};

use crate::renamed::RenamedStacks;

/// Threads with a place of their own in lists by thread: ids are dense, a forged one must not size a list.
const MAX_TABLES: usize = 1 << 20;
/// Places of a table at first; a power of two.
const FIRST_PLACES: usize = 8;
/// No entry.
const FREE: u32 = u32::MAX;
/// A place without an entry.
const FREE_PLACE: Place = Place {
    entry: FREE,
    tag: 0,
};

/// What spans must have in common to be one sum.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    thread: u32,
    /// 0 where there is none, see `parts`.
    wait: u32,
    /// The same.
    stack: u32,
    state: ThreadState,
    /// Bit 0: has a wait; bit 1: has a stack.
    parts: u8,
    /// When the names of its frames began to hold, see [`RenamedStacks`].
    pub(crate) since: TimeNs,
}

impl Key {
    #[inline]
    pub(crate) fn from_span(span: &Span, renamed: &RenamedStacks) -> Self {
        let parts = u8::from(span.wait.is_some()) | u8::from(span.stack.is_some()) << 1;
        Self {
            thread: span.thread.0,
            wait: span.wait.map_or(0, |id| id.0),
            stack: span.stack.map_or(0, |id| id.0),
            state: span.state,
            parts,
            since: renamed.since(span.stack, span.end),
        }
    }

    pub(crate) fn thread(&self) -> ThreadId {
        ThreadId(self.thread)
    }

    pub(crate) fn state(&self) -> ThreadState {
        self.state
    }

    pub(crate) fn wait(&self) -> Option<WaitId> {
        (self.parts & 1 != 0).then_some(WaitId(self.wait))
    }

    pub(crate) fn stack(&self) -> Option<StackId> {
        (self.parts & 2 != 0).then_some(StackId(self.stack))
    }
}

/// Values by key, in the order in which they came.
#[derive(Clone, Debug)]
pub(crate) struct Index<T> {
    entries: Vec<Entry<T>>,
    /// By thread; the last one is that of all others.
    tables: Vec<Table>,
    hash: FastState,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            tables: Vec::new(),
            hash: FastState::default(),
        }
    }
}

/// An entry lies in one line of the processor's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry<T> {
    key: Key,
    value: T,
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// Entries, by hash; a power of two, or none.
    places: Vec<Place>,
    n: usize,
}

impl Table {
    /// The place and the entry of a key with this hash, of those with its tag the first that `is_it`;
    /// or [`FREE`] and the place where it would be, which a table without places does not have.
    #[inline]
    fn probe(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> (usize, u32) {
        let Some(mask) = self.places.len().checked_sub(1) else {
            return (usize::MAX, FREE);
        };
        let mut at = hash as usize & mask;
        // A table is never full.
        loop {
            let Place { entry, tag: found } = self.places[at];
            if entry == FREE || found == tag(hash) && is_it(entry) {
                return (at, entry);
            }
            at = (at + 1) & mask;
        }
    }
}

/// An entry's index and a part of its hash, which nearly always tells it from others without a look
/// at the entry itself.
#[derive(Copy, Clone, Debug)]
struct Place {
    entry: u32,
    tag: u32,
}

/// A key's hash, and the entry that it probably has.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Hint {
    hash: u64,
    entry: u32,
    /// The entry has the key.
    is_right: bool,
}

impl<T> Index<T> {
    pub(crate) fn get(&self, at: usize) -> Option<(&Key, &T)> {
        self.entries.get(at).map(|entry| (&entry.key, &entry.value))
    }

    /// All keys, each with its index.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, &Key)> {
        self.entries.iter().map(|entry| &entry.key).enumerate()
    }

    /// A key's value.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<&T> {
        let table = self.tables.get(place_of(key.thread()))?;
        let (_, entry) = table.probe(hash(&self.hash, key), |entry| self.is_at(entry, key));
        self.entries.get(entry as usize).map(|entry| &entry.value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().map(|entry| &mut entry.value)
    }

    /// Where a key probably is. To look for many keys before their values are needed lets the
    /// processor wait for memory once instead of for each.
    #[inline]
    pub(crate) fn hint(&self, key: &Key) -> Hint {
        let hash = hash(&self.hash, key);
        let entry = match self.tables.get(place_of(key.thread())) {
            Some(table) => table.probe(hash, |_| true).1,
            None => FREE,
        };
        Hint {
            hash,
            entry,
            is_right: false,
        }
    }

    /// Looks whether a hint is right, which for many keys is again done before their values are needed.
    #[inline]
    pub(crate) fn confirm(&self, key: &Key, hint: &mut Hint) {
        hint.is_right = self.is_at(hint.entry, key);
    }

    /// A key's value, made if there is none, and its index.
    #[inline]
    pub(crate) fn get_or_insert(
        &mut self,
        key: &Key,
        hint: Hint,
        make: impl FnOnce() -> T,
    ) -> (usize, &mut T) {
        let index = match hint.is_right {
            true => hint.entry as usize,
            false => self.find_or_insert(key, hint.hash, make),
        };
        (index, &mut self.entries[index].value)
    }

    #[cold]
    #[inline(never)]
    fn find_or_insert(&mut self, key: &Key, hash: u64, make: impl FnOnce() -> T) -> usize {
        let at = place_of(key.thread());
        if at >= self.tables.len() {
            self.tables.resize_with(at + 1, Table::default);
        }
        match self.tables[at].probe(hash, |entry| self.is_at(entry, key)) {
            (place, FREE) => self.insert(at, place, hash, *key, make()),
            (_, entry) => entry as usize,
        }
    }

    #[inline]
    fn is_at(&self, entry: u32, key: &Key) -> bool {
        let entry = self.entries.get(entry as usize);
        entry.is_some_and(|entry| entry.key == *key)
    }

    fn insert(&mut self, table: usize, place: usize, hash: u64, key: Key, value: T) -> usize {
        let index = self.entries.len();
        self.entries.push(Entry { key, value });
        let table = &mut self.tables[table];
        table.n += 1;
        let new = Place {
            entry: index as u32,
            tag: tag(hash),
        };
        let has_room = table.n * 2 <= table.places.len();
        if let Some(place) = table.places.get_mut(place).filter(|_| has_room) {
            *place = new;
            return index;
        }
        let n = (table.places.len() * 2).max(FIRST_PLACES);
        let old = std::mem::replace(&mut table.places, vec![FREE_PLACE; n]);
        for place in old.into_iter().chain([new]) {
            let Some(entry) = self.entries.get(place.entry as usize) else {
                continue;
            };
            let mut at = self::hash(&self.hash, &entry.key) as usize & (n - 1);
            while table.places[at].entry != FREE {
                at = (at + 1) & (n - 1);
            }
            table.places[at] = place;
        }
        index
    }
}

/// The part of a hash that does not decide on the place.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The place of a thread in a list by thread; one for all that are beyond the longest.
#[inline]
pub(crate) fn place_of(thread: ThreadId) -> usize {
    (thread.0 as usize).min(MAX_TABLES)
}

#[inline]
fn hash(state: &FastState, key: &Key) -> u64 {
    // The thread matters only in the table of all others.
    let ids = u64::from(key.wait) << 32 | u64::from(key.stack);
    let rest =
        u64::from(key.thread) << 16 | u64::from(key.parts) << 8 | u64::from(key.state.code());
    state.hash_one((ids, rest ^ key.since.0.rotate_left(40)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(thread: u32, stack: u32) -> Span {
        Span {
            thread: ThreadId(thread),
            start: TimeNs(0),
            end: TimeNs(1),
            weight: 1,
            n_samples: 1,
            state: ThreadState::OnCpu,
            wait: None,
            stack: stack.checked_sub(1).map(StackId),
        }
    }

    /// Check that each key has one entry however tables grow, with ids that no table may be as large
    /// as, and that keys which differ in one part are kept apart.
    #[test]
    fn keys() {
        let renamed = RenamedStacks::default();
        let mut index = Index::default();
        for round in 0..3 {
            for thread in [0, 1, 7, MAX_TABLES as u32 + 5, u32::MAX] {
                for stack in 0..100 {
                    let key = Key::from_span(&span(thread, stack), &renamed);
                    let hint = index.hint(&key);
                    let (at, n) = index.get_or_insert(&key, hint, || 0);
                    assert_eq!(*n, round);
                    *n += 1;
                    assert_eq!(index.get(at).map(|(key, _)| *key), Some(key));
                    assert_eq!(index.find(&key), Some(&(round + 1)));
                    assert_eq!(key.stack(), stack.checked_sub(1).map(StackId));
                }
            }
        }
        assert_eq!(index.entries.len(), 500);
        assert!(index.tables.len() <= MAX_TABLES + 1);
        let unknown = Key::from_span(&span(0, 101), &renamed);
        assert_eq!(index.find(&unknown), None);
    }

    /// Check that a hint from before other keys came, or to another key's entry, leads to the key's own.
    #[test]
    fn hints() {
        let renamed = RenamedStacks::default();
        let mut index = Index::default();
        let keys: Vec<Key> = (0..500)
            .map(|n| Key::from_span(&span(n % 3, n / 2), &renamed))
            .collect();
        let old: Vec<Hint> = keys.iter().map(|key| index.hint(key)).collect();
        for (key, mut hint) in keys.iter().zip(old) {
            index.confirm(key, &mut hint);
            assert!(!hint.is_right || index.find(key).is_some());
            *index.get_or_insert(key, hint, || 0).1 += 1;
        }
        for key in &keys {
            let mut hint = index.hint(key);
            index.confirm(key, &mut hint);
            assert!(hint.is_right);
            hint.entry += 1;
            index.confirm(key, &mut hint);
            assert!(!hint.is_right);
            *index.get_or_insert(key, hint, || 0).1 += 1;
        }
        let distinct: std::collections::HashSet<&Key> = keys.iter().collect();
        assert_eq!(index.entries.len(), distinct.len());
        for key in distinct {
            let n = keys.iter().filter(|other| *other == key).count();
            assert_eq!(index.find(key), Some(&(2 * n)));
        }
    }

    /// Check that an entry of the builder's size is one line of the cache.
    #[test]
    fn size() {
        assert!(size_of::<Key>() <= 24);
        assert_eq!(size_of::<Entry<[u64; 4]>>(), 64);
    }
}
