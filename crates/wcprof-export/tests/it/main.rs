//! Profiles in the formats of other viewers.
#![forbid(unsafe_code)]

#[path = "../support/read.rs"]
mod read;
#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod formats;
