//! Equal values to one number each, in half the memory of a set that keeps hashes.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

use crate::error::{Result, within};

/// Distinct values, numbered in the order in which they came.
#[derive(Debug)]
pub(crate) struct DistinctValues<T> {
    values: Vec<T>,
    /// Indexes into `values`.
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl<T> Default for DistinctValues<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashTable::new(),
            hasher: RandomState::new(),
        }
    }
}

impl<T: Eq + Hash> DistinctValues<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    fn find(&self, value: &T) -> Option<u32> {
        let is_it = |at: &u32| self.values[*at as usize] == *value;
        let found = self.numbers.find(self.hasher.hash_one(value), is_it);
        found.copied()
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        self.find(value).is_some()
    }

    /// The number of a value, which is added if it is new.
    ///
    /// # Errors
    /// When there would be more than `limit` of `what`.
    pub(crate) fn intern(&mut self, value: T, limit: usize, what: &'static str) -> Result<u32> {
        if let Some(known) = self.find(&value) {
            return Ok(known);
        }
        let id = next_id(self.values.len(), limit, what)?;
        let hash = self.hasher.hash_one(&value);
        self.values.push(value);
        let (values, hasher) = (&self.values, &self.hasher);
        let hash_of = |at: &u32| hasher.hash_one(&values[*at as usize]);
        self.numbers.insert_unique(hash, id, hash_of);
        Ok(id)
    }

    /// The values in the order of their numbers.
    pub(crate) fn into_values(self) -> Vec<T> {
        self.values
    }
}

/// The id of the value at `at`, if that is within the limit.
pub(crate) fn next_id(at: usize, limit: usize, what: &'static str) -> Result<u32> {
    // No limit is larger.
    within(at + 1, limit.min(u32::MAX as usize), what).map(|()| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a value keeps its number while others are added, and that the limit is kept.
    #[test]
    fn numbers() {
        let mut interned = DistinctValues::default();
        for round in 0..2 {
            for n in 0..1000_u64 {
                assert_eq!(interned.intern(n * 7, 1000, "numbers").ok(), Some(n as u32));
                assert!(round == 1 || interned.len() as u64 == n + 1);
            }
        }
        assert!(interned.contains(&7) && !interned.contains(&8));
        assert!(interned.intern(8, 1000, "numbers").is_err());
        assert_eq!(interned.into_values().last(), Some(&(999 * 7)));
    }
}
