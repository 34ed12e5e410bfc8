//! Profiles in the formats of other viewers.
#![forbid(unsafe_code)]

#[path = "../../src/pprof/proto.rs"]
mod proto;
#[path = "../support/read.rs"]
mod read;
#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod exports;
mod formats;
mod hostile;
mod store;
mod written;
