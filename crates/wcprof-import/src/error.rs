//! Why nothing was imported.

use std::io;

use thiserror::Error;
use wcprof_trace::TraceError;

use crate::format::Format;

/// Of an import.
pub(crate) type Result<T, E = ImportError> = std::result::Result<T, E>;

/// Why a file could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Reading failed.
    #[error("failed to read: {0}")]
    Read(#[source] io::Error),
    /// The trace could not be written.
    #[error("failed to write the trace: {0}")]
    Write(#[source] TraceError),
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// It is something that is known, but cannot be imported.
    #[error("this is {what}: {advice}")]
    Foreign {
        /// What it is.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// It is nothing that is known.
    #[error(
        "not recognized: of {n_lines} lines {n_folded} look like folded stacks and {n_tree} like \
         uwpmp's or gdbpmp's tree; perf.data and the text of perf script, folded stacks, \
         these two, pt-pmp's counted stacks and dumps of gdb and eu-stack are known"
    )]
    NotRecognized {
        /// Lines looked at.
        n_lines: usize,
        /// Those like folded stacks.
        n_folded: usize,
        /// Those like lines of a tree.
        n_tree: usize,
    },
    /// Another format than the one given.
    #[error("this is not {}: it looks like {} (--format {})", wanted.what(), found.what(), found.name())]
    OtherFormat {
        /// What was given.
        wanted: Format,
        /// What it looks like.
        found: Format,
    },
    /// Not the format given, but something that cannot be imported.
    #[error("this is not {}: {found}", wanted.what())]
    NotThis {
        /// What was given.
        wanted: Format,
        /// What was said of it.
        found: String,
    },
    /// No core file.
    #[error("this is no core file")]
    NoCore,
    /// A core file that is not read.
    #[error("{0}")]
    Core(String),
    /// Nothing in it has time.
    #[error("the file holds no samples{0}")]
    NoSamples(String),
    /// Too much of something.
    #[error("{what} passes the limit of {limit}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// `perf.data` that cannot be parsed.
    #[error("failed to parse perf.data: {0}")]
    Perf(String),
}

/// Fails when there are more than `limit` of something.
pub(crate) fn within(n: usize, limit: usize, what: &'static str) -> Result<()> {
    let limit = limit as u64;
    match n as u64 <= limit {
        true => Ok(()),
        false => Err(ImportError::TooLarge { what, limit }),
    }
}
