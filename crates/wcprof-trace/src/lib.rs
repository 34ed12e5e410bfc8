//! The trace: what a recording holds, and the `.wct` file that keeps it.
//!
//! [`TraceWriter`] turns a recording into a file while it runs, [`TraceReader`] turns the file
//! back into a [`model::Trace`]. A [`ring::Ring`] takes the place of the writer where only the last
//! time is of interest. The file's layout is described in `docs/trace-format.md`.
#![forbid(unsafe_code)]

pub mod model;

mod anonymous;
mod content;
mod error;
mod format;
mod joins;
pub mod limits;
mod lost;
mod merge;
mod names;
mod output;
mod parallel;
mod pending;
mod reader;
pub mod ring;
mod sink;
mod source;
mod stack_sets;
mod whole;
mod writer;

#[cfg(test)]
mod tests;

pub use anonymous::anonymize;
pub use error::{Malformed, TraceError};
/// A fast hash for interning. It is seeded for each table, so that a target cannot choose addresses
/// that collide.
pub use foldhash::fast::RandomState as FastState;
pub use format::{FILE_HEADER_BYTES, FORMAT_MINOR, FORMAT_VERSION};
pub use joins::{Joins, Overlap, Repeated};
pub use merge::{Align, MergeLosses, merge, merged_header};
pub use reader::{Ending, TraceReader};
pub use sink::{Room, TraceSink};
pub use stack_sets::StackSets;
pub use whole::Ids;
pub use writer::TraceWriter;
