//! The command on saved traces and files.
#![forbid(unsafe_code)]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/traces.rs"]
mod traces;

mod bad_input;
mod check;
mod confined;
mod crypto_model;
mod doctor;
mod format_versions;
mod hostile_names;
mod html;
mod import;
mod outputs;
mod replay;
mod store;
mod symbols;
mod views;
