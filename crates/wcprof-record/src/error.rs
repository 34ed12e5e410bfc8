//! Why a recording fails.

use thiserror::Error;
use wcprof_trace::TraceError;

/// Why a recording failed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
