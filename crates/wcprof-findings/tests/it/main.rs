//! Findings of synthetic traces.
#![forbid(unsafe_code)]

#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod certainty;
mod fleets;
mod stopped;
mod watch;
