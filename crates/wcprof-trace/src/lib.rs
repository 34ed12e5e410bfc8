//! The trace: what a recording holds, and the `.wct` file that keeps it.
#![forbid(unsafe_code)]

pub mod model;
