//! What a store was sent, and what it has of it.

use std::collections::BTreeMap;

use crate::pprof;

/// A request as the store was sent it, not compressed.
#[derive(Clone, Debug, Default)]
pub struct StoreRequest {
    /// Path of the request below the URL of the store.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body of the request, whatever its form.
    pub body: Vec<u8>,
    /// Bytes of the body as the store was sent them.
    pub n_sent: usize,
    /// Status that the store answered; 0 for no answer.
    pub status: u16,
    /// Profiles of the request that the store keeps.
    pub stored: Vec<StoredProfile>,
}

/// A profile that a store has.
#[derive(Clone, Debug, Default)]
pub struct StoredProfile {
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// The pprof message, without what the store does not keep; of OTLP with the types of values alone.
    pub pprof: pprof::Profile,
    /// Sums of the values of all samples, by type.
    pub sums: BTreeMap<String, i64>,
    /// Samples.
    pub n_samples: usize,
    /// Bytes of the pprof message, not compressed.
    pub n_bytes: usize,
    /// The agent gives each profile a new one; others may give none.
    pub id: String,
}

impl StoredProfile {
    /// The end of the window of the profile, ns since 1970.
    pub fn end(&self) -> i64 {
        self.pprof.time_nanos + self.pprof.duration_nanos
    }
}
