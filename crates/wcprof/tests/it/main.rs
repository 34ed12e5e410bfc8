//! The command on saved traces and files.
#![forbid(unsafe_code)]

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
mod shown;
mod store;
mod support;
mod symbols;
mod views;
