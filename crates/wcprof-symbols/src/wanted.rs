//! The addresses that names are wanted for, sorted.

use std::ops::Range;

use wcprof_types::Avma;

/// Distinct addresses in order.
pub(crate) struct Wanted(pub(crate) Vec<u64>);

impl Wanted {
    pub(crate) fn new(addresses: &[Avma]) -> Self {
        let mut wanted: Vec<u64> = addresses.iter().map(|a| a.0).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Self(wanted)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Index of the first address from `address` on.
    pub(crate) fn first_from(&self, address: u64) -> usize {
        self.0.partition_point(|&wanted| wanted < address)
    }

    /// Indexes of the addresses from `start` to `end` (exclusive).
    pub(crate) fn between(&self, start: u64, end: u64) -> Range<usize> {
        let first = self.first_from(start);
        first..self.first_from(end).max(first)
    }

    /// Values by index to values in the order of `addresses`.
    pub(crate) fn in_order<T: Clone + Default>(&self, addresses: &[Avma], values: &[T]) -> Vec<T> {
        let value = |address: &Avma| values.get(self.0.binary_search(&address.0).ok()?).cloned();
        let values = addresses.iter().map(|a| value(a).unwrap_or_default());
        values.collect()
    }
}
