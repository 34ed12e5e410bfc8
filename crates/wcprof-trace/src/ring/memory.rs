//! How much a ring may hold, and how much it does.

use std::time::Duration;

/// How much a ring holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RingOptions {
    /// The time that is kept.
    pub keep: Duration,
    /// Most memory of spans and tables, bytes. Beyond it the time is shorter.
    pub max_bytes: usize,
}

/// The memory of a ring at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RingMemory {
    /// Bytes that spans and tables take, about.
    pub bytes: usize,
    /// [`RingOptions::max_bytes`].
    pub max_bytes: usize,
    /// How often a tenth of the kept time was dropped early because the memory was used up.
    pub n_shortened: u64,
}
