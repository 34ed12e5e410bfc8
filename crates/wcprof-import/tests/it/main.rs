//! Files of other profilers.
#![forbid(unsafe_code)]

mod dumps;
mod perf;
mod text;
