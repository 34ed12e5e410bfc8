//! Traces to profiles.
#![forbid(unsafe_code)]

#[path = "../support/mod.rs"]
mod support;

mod cores;
mod diff;
mod locks;
mod many_rows;
mod merged;
mod operations;
mod places;
mod precision;
mod profile;
mod states;
mod unexplained;
mod views;
