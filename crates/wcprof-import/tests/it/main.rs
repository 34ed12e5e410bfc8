//! Files of other profilers.
#![forbid(unsafe_code)]

mod perf;
mod text;
