//! Files that were written, read back with the crate `parquet`.
#![forbid(unsafe_code)]

#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod read;
mod written;
