//! Times of the sampler to times of the trace, and to those since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use wcprof_host::clock::monotonic_ns;
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

/// A moment of `CLOCK_MONOTONIC` that was a little while ago, in ns since 1970 (UTC).
pub(crate) fn unix_ns_at(monotonic: u64) -> u64 {
    let ago = monotonic_ns().saturating_sub(monotonic);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| (now.as_nanos() as u64).saturating_sub(ago))
}
