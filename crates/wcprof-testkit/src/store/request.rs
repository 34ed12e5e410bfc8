//! What a store was sent, and what it has of it.

use std::collections::BTreeMap;

use crate::pprof;

/// What it was sent, not compressed.
#[derive(Clone, Debug, Default)]
pub struct StoreRequest {
    /// Below its URL.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Whatever it is.
    pub body: Vec<u8>,
    /// Bytes of it as it was sent.
    pub n_sent: usize,
    /// What it answered; 0 for nothing.
    pub status: u16,
    /// What it has of it.
    pub stored: Vec<StoredProfile>,
}

/// A profile that a store has.
#[derive(Clone, Debug, Default)]
pub struct StoredProfile {
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// Its message, without what the store does not keep; of OTLP with the types of values alone.
    pub pprof: pprof::Profile,
    /// Sums of its values, by type.
    pub sums: BTreeMap<String, i64>,
    /// Samples.
    pub n_samples: usize,
    /// Bytes of its message, not compressed.
    pub n_bytes: usize,
    /// The agent gives each profile a new one; others may give none.
    pub id: String,
}

impl StoredProfile {
    /// The end of its window, ns since 1970.
    pub fn end(&self) -> i64 {
        self.pprof.time_nanos + self.pprof.duration_nanos
    }
}
