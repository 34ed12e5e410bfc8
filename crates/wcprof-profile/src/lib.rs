//! The profile: a symbolized, classified, aggregated trace, and the trees made from it.
#![forbid(unsafe_code)]

pub mod model;
