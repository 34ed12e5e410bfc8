//! What can go wrong with a trace.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::format::FORMAT_VERSION;

/// Why a trace could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened for reading.
    #[error("failed to open `{}`: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Writing failed. What was written before is readable.
    #[error("failed to write the trace: {0}; what was written before is kept")]
    Write(#[source] io::Error),
    /// A write failed earlier and left a partial block that could not be removed.
    #[error("failed to write the trace: an earlier write failed halfway")]
    Broken,
    /// Something other than names was written after the end of the recording.
    #[error("failed to write the trace: the recording has ended already")]
    Finished,
    /// Reading failed.
    #[error("failed to read the trace: {0}")]
    Read(#[source] io::Error),
    /// The file is not a trace: what it is instead, and what to do about it.
    #[error("not a wcprof trace: {0}")]
    Foreign(&'static str),
    /// The format version is not known.
    #[error(
        "trace has format version {found}; this wcprof reads version {FORMAT_VERSION}: \
         use the wcprof that recorded it{newer}",
        found = .0,
        newer = or_newer(.0)
    )]
    Version(u32),
    /// The file asks for what this reader does not know.
    #[error(
        "trace needs features that this wcprof does not have (bits {0:#x}): \
         use the wcprof that recorded it, or a newer one"
    )]
    Features(u64),
    /// The file was cut or damaged before the end of its first block.
    #[error("trace holds no whole block: the recording ended before anything was saved")]
    Empty,
    /// The first block, at this byte, is damaged.
    #[error("trace is damaged at its beginning (byte {0}): nothing can be read")]
    DamagedAtBeginning(u64),
    /// A block has the right checksum and a wrong content.
    #[error("malformed block at byte {offset} of the trace: {source}")]
    Malformed {
        /// Position in the file of the block, bytes.
        offset: u64,
        /// What is wrong.
        source: Malformed,
    },
    /// What was to be written is not valid.
    #[error("failed to write the trace: {0}")]
    Invalid(#[from] Malformed),
}

/// What is wrong with the content of a block, or with what was to be written.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A value goes past the end of its section.
    #[error("section ends within a value")]
    UnexpectedEnd,
    /// Bytes are left at the end of a section.
    #[error("{0} bytes too many in a section")]
    Trailing(usize),
    /// A number has more bits than its type.
    #[error("number too large")]
    NumberTooLarge,
    /// A string is not UTF-8.
    #[error("string is not utf-8")]
    NotUtf8,
    /// More than allowed.
    #[error("{count} {what}, the limit is {limit}")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// An id that is not in its table.
    #[error("unknown {what} {id}, there are {len}")]
    UnknownId {
        /// Kind of id.
        what: &'static str,
        /// The id.
        id: u64,
        /// Size of the table.
        len: u64,
    },
    /// A code without a meaning.
    #[error("unknown {what} code {code}")]
    UnknownCode {
        /// Kind of code.
        what: &'static str,
        /// The code.
        code: u64,
    },
    /// A table does not go on where it ended.
    #[error("{what} begin at {found}, not at {expected}")]
    Gap {
        /// The table.
        what: &'static str,
        /// The first id in the section.
        found: u64,
        /// The first free id.
        expected: u64,
    },
    /// An interval that ends before it begins, or a time out of range.
    #[error("interval {start}..{end} ns is not valid")]
    Interval {
        /// Begin, nanoseconds.
        start: u64,
        /// End, nanoseconds.
        end: u64,
    },
    /// The sum of all weights does not fit 64 bits.
    #[error("the sum of all weights is too large")]
    WeightTooLarge,
    /// A block that cannot be decompressed to the size it states.
    #[error("failed to decompress")]
    Decompress,
    /// The first section is not the header, or there is a second header.
    #[error("header missing or repeated")]
    Header,
    /// An empty build-id or one that is too long.
    #[error("build-id of {0} bytes")]
    BuildId(usize),
}

/// Who else reads a version: nobody knows an old one that this wcprof does not.
fn or_newer(version: &u32) -> &'static str {
    match *version > FORMAT_VERSION {
        true => ", or a newer one",
        false => "",
    }
}
