//! Profiles to the formats that wcprof prints.
#![forbid(unsafe_code)]

#[path = "../../../wcprof-profile/tests/support/mod.rs"]
mod support;

mod golden;
mod html;
mod random;
mod uwpmp;
