//! Why an ELF file, or a part of it, could not be read.

use thiserror::Error;

/// Why an ELF file could not be read.
#[derive(Debug, Error)]
pub enum ElfError {
    /// It is not a regular file.
    #[error("not a regular file")]
    NotRegular,
    /// It does not begin like an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file of a kind that is not supported.
    #[error("unsupported ELF file: {0}")]
    Unsupported(&'static str),
    /// Something lies beyond the end of the file.
    #[error("{what} ends beyond the file: {size:#x} bytes at offset {offset:#x}")]
    Truncated {
        /// What was read.
        what: String,
        /// Where it begins.
        offset: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// Something is larger than the limit for it.
    #[error("{what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// What was read.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A header contradicts itself.
    #[error("malformed {0}")]
    Malformed(String),
    /// A compressed section could not be expanded.
    #[error("failed to expand {section}: {reason}")]
    Compression {
        /// The section.
        section: String,
        /// The decoder's reason.
        reason: String,
    },
    /// Its reader no longer wants it ([`Cancel`](crate::Cancel)).
    #[error("reading it was cancelled")]
    Cancelled,
    /// Reading failed.
    #[error("failed to read {what}: {source}")]
    Io {
        /// What was read.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}
