//! The time of a profile as a Parquet file, for questions over many traces: one line for each row of the profile and slice
//! of time. `ParquetWriter` takes the spans of a trace in their order, so that memory grows with the profile and not
//! with the recording.
//!
//! `docs/parquet.md` describes the columns. Names come from the target and are hostile: control, bidirectional and invisible
//! characters are `?`, as in all exports.
//!
//! Without the feature `parquet` this crate is empty.
#![forbid(unsafe_code)]
#![cfg(feature = "parquet")]

mod columns;
mod keys;
mod sums;
mod writer;

pub use writer::{Options, ParquetWriter};
