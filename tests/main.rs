//! End-to-end tests: the built `wcprof` against live processes whose truth is known.
//!
//! The targets are the programs of `fixtures/src`, compiled here when a test first asks for one.
//! `tests/README.md` has the table of which assertions hold for which engine.
#![forbid(unsafe_code)]

mod common;
mod crypto;
mod demo;
mod harm;
mod input;
mod perf;
mod stripped;
mod suite;
mod top;
