//! Rows of a profile that a rule counts, and their sums.

use wcprof_profile::model::Row;

use crate::matching::Anchor;

/// A row that a rule counts.
#[derive(Copy, Clone)]
pub(crate) struct Counted<'p> {
    pub(crate) row: &'p Row,
    pub(crate) anchor: Anchor,
}

/// Time and samples of rows.
#[derive(Copy, Clone, Default)]
pub(crate) struct Sum {
    /// ns.
    pub(crate) weight: u64,
    pub(crate) n_samples: u64,
}

impl Sum {
    pub(crate) fn new<'c, 'p: 'c>(rows: impl IntoIterator<Item = &'c Counted<'p>>) -> Self {
        let mut sum = Self::default();
        for counted in rows {
            sum.weight = sum.weight.saturating_add(counted.row.weight);
            sum.n_samples = sum.n_samples.saturating_add(counted.row.n_samples);
        }
        sum
    }
}
