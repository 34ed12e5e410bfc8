//! Sorted addresses, and those of them that lie in ranges.
//!
//! A file may have millions of ranges that all hold every address. So sets of addresses are ranges of
//! their positions, of which there are never more than addresses.

use std::ops::Range;

/// An address to look up, and its index in the caller's list.
pub(crate) type Wanted = (u64, usize);

/// Positions of those of the sorted `wanted` from `begin` to `end` (exclusive).
pub(crate) fn between(wanted: &[Wanted], begin: u64, end: u64) -> Range<usize> {
    let from = wanted.partition_point(|(address, _)| *address < begin);
    let rest = wanted.get(from..).unwrap_or_default();
    from..from + rest.partition_point(|(address, _)| *address < end)
}

/// A set of positions.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// Not empty; in any order and overlapping until [`Self::sort`].
    ranges: Vec<Range<usize>>,
    /// Sorted anew when there are more ranges than this.
    full: usize,
}

impl Positions {
    /// Adds those of the sorted `wanted` from `begin` to `end` (exclusive).
    pub(crate) fn add(&mut self, wanted: &[Wanted], begin: u64, end: u64) {
        let range = between(wanted, begin, end);
        if range.is_empty() {
            return;
        }
        match self.ranges.last_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => self.ranges.push(range),
        }
        if self.ranges.len() > self.full {
            self.sort();
            self.full = 64 + 2 * self.ranges.len();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The positions, each once, in order.
    pub(crate) fn into_iter(mut self) -> impl Iterator<Item = usize> {
        self.sort();
        self.ranges.into_iter().flatten()
    }

    /// Puts the ranges in order, and joins those that meet.
    fn sort(&mut self) {
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.ranges.dedup_by(|next, kept| {
            let meets = next.start <= kept.end;
            if meets {
                kept.end = kept.end.max(next.end);
            }
            meets
        });
    }
}

/// Positions that have not been taken out yet, in time that does not grow with those that were.
pub(crate) struct Open {
    /// For each position: itself while it is open, else a later one that may be.
    next: Vec<usize>,
}

impl Open {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            next: (0..=len).collect(),
        }
    }

    /// The first open position from `at` on; the number of positions when there is none.
    pub(crate) fn first_from(&mut self, mut at: usize) -> usize {
        while let Some(next) = self.next.get(at).copied().filter(|next| *next != at) {
            let after = self.next.get(next).copied().unwrap_or(next);
            if let Some(slot) = self.next.get_mut(at) {
                *slot = after;
            }
            at = after;
        }
        at
    }

    /// Takes a position out.
    pub(crate) fn close(&mut self, at: usize) {
        if let Some(slot) = self.next.get_mut(at) {
            *slot = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(n: u64) -> Vec<Wanted> {
        (0..n).zip(0..).collect()
    }

    /// Check that ranges in any order give each position once, in order, and that there are never many
    /// more ranges than positions.
    #[test]
    fn positions() {
        let wanted = wanted(100);
        let mut positions = Positions::default();
        for i in 0..10_000 {
            let begin = i * 37 % 90;
            positions.add(&wanted, begin, begin + i % 3);
            assert!(positions.ranges.len() <= 64 + 2 * 100 + 1);
        }
        assert!(positions.into_iter().eq(1..91));
        let mut positions = Positions::default();
        positions.add(&wanted, 200, 300);
        positions.add(&wanted, 50, 50);
        assert!(positions.is_empty());
    }

    /// Check that what was taken out is not found again.
    #[test]
    fn open() {
        let mut open = Open::new(5);
        for at in [3, 1, 2] {
            assert_eq!(open.first_from(at), at);
            open.close(at);
        }
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|at| open.first_from(at)),
            [0, 4, 4, 4, 4, 5]
        );
        open.close(4);
        assert_eq!(open.first_from(1), 5);
    }
}
