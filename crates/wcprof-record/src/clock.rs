//! Times of the sampler to times of the trace.

use wcprof_types::TimeNs;

/// The sampler's clock (`CLOCK_MONOTONIC`, ns) to the trace's.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// When the first tick began: the trace's time 0.
    pub(crate) begin: Option<u64>,
    /// The latest time that a batch had.
    pub(crate) last: u64,
    /// When the trace was written out last.
    pub(crate) flushed: u64,
}

impl Clock {
    pub(crate) fn time(&self, monotonic: u64) -> TimeNs {
        TimeNs(monotonic.saturating_sub(self.begin.unwrap_or(0)))
    }
}
