//! What can end the workload early, or leave it without a slow disk.

use std::io;

use nix::errno::Errno;
use openssl::error::ErrorStack;
use thiserror::Error;

/// Why the workload ended early, or has no slow disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DemoError {
    /// A file or a thread could not be had.
    #[error("the demo failed to {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A system call failed.
    #[error("the demo failed to {action}")]
    Sys {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: Errno,
    },
    /// libcrypto refused.
    #[error("demo workload failed to decrypt a frame with libcrypto")]
    Crypto(#[from] ErrorStack),
    /// A thread panicked.
    #[error("a thread of the demo workload panicked")]
    Panicked,
}

impl DemoError {
    pub(crate) fn sys(action: &'static str) -> impl Fn(Errno) -> Self {
        move |source| Self::Sys { action, source }
    }

    pub(crate) fn io(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}
