//! Spans to sums by slice of time and key, of which a bounded number is kept.

use std::collections::{BTreeMap, HashMap};

/// Time of one key in one slice.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
}

/// A slice and its sums, by key.
pub(crate) type Slice = (u64, Vec<(u32, Sum)>);

/// Sums that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    slices: BTreeMap<u64, HashMap<u32, Sum>>,
    n: usize,
}

impl Sums {
    pub(crate) fn add(&mut self, slice: u64, key: u32, weight: u64, n_samples: u64) {
        let sums = self.slices.entry(slice).or_default();
        let before = sums.len();
        let sum = sums.entry(key).or_default();
        sum.weight = sum.weight.saturating_add(weight);
        sum.n_samples = sum.n_samples.saturating_add(n_samples);
        self.n += sums.len() - before;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.n
    }

    /// Takes the oldest slices out until at most so many sums are left. Spans come nearly in the order of their ends: what
    /// is still to come is mostly of the newest.
    pub(crate) fn take_until(&mut self, n_left: usize) -> Vec<Slice> {
        let mut taken = Vec::new();
        while self.n > n_left
            && let Some((slice, sums)) = self.slices.pop_first()
        {
            self.n -= sums.len();
            let mut sums: Vec<(u32, Sum)> = sums.into_iter().collect();
            sums.sort_unstable_by_key(|(key, _)| *key);
            taken.push((slice, sums));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal keys add up, and that the oldest slices leave first, in order.
    #[test]
    fn oldest_first() {
        let mut sums = Sums::default();
        for (slice, key) in [(7, 2), (5, 1), (7, 1), (5, 1), (6, 3)] {
            sums.add(slice, key, 10, 1);
        }
        assert_eq!(sums.len(), 4);
        let sum = |n| Sum {
            weight: 10 * n,
            n_samples: n,
        };
        let taken = sums.take_until(2);
        assert_eq!(taken, [(5, vec![(1, sum(2))]), (6, vec![(3, sum(1))])]);
        assert_eq!(sums.len(), 2);
        assert_eq!(sums.take_until(0), [(7, vec![(1, sum(1)), (2, sum(1))])]);
        assert!(sums.take_until(0).is_empty());
    }
}
