//! Profiles compared.
#![forbid(unsafe_code)]

#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod steady;
