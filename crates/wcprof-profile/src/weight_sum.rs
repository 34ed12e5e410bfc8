//! Rows to sums whose precision can be told.

use crate::model::Row;
use crate::precision::Course;

/// Sum of the weights of some rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct WeightSum {
    /// Nanoseconds of wall-clock time.
    pub(crate) weight: u64,
    /// Observations it stands on.
    pub(crate) n_samples: u64,
    pub(crate) course: Course,
    /// Threads whose time it is, if rows come thread by thread.
    pub(crate) n_threads: u64,
    last_thread: Option<usize>,
}

impl WeightSum {
    /// Adds a row with its course; those of one thread one after the other.
    pub(crate) fn add(&mut self, row: &Row, course: &Course) {
        self.weight = self.weight.saturating_add(row.weight);
        self.n_samples = self.n_samples.saturating_add(row.n_samples);
        self.course.add(course);
        if self.last_thread != Some(row.thread) {
            self.last_thread = Some(row.thread);
            self.n_threads += 1;
        }
    }
}
