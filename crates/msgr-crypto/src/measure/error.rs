//! Why something could not be measured.

use msgr_crypto_ffi::CallError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// libcrypto failed.
    #[error("failed to run a measurement: {0}")]
    Call(#[from] CallError),
    /// The kernel has no CPU clock of the thread.
    #[error("failed to read the CPU clock of this thread: {0}")]
    Clock(#[from] nix::Error),
    /// What was measured makes no sense: another load, or a virtual machine that was moved.
    #[error("the measurement gave impossible figures ({0}); measure again on a calmer machine")]
    Unstable(String),
}
