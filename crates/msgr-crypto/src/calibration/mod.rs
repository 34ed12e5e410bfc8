//! What calls of one libcrypto cost on one machine: measured once, kept as JSON, used by the model.
//!
//! An update of `n` bytes that begins at a block border costs `f(n)`, a unit without updates costs
//! `unit_ns`. `f` is kept as a table with enough points to see the kernel's steps: every 16 bytes up
//! to 1 KiB, one period of its pattern, and sizes up to half a megabyte. What calls that begin or end
//! within a block cost more is kept as corrections. All of it is for data in the caches of the core.

mod costs;
mod curve;
mod fit;
mod json;
mod speed;
mod take;

pub use costs::{Calibration, DirectionCosts, LibraryFacts};
pub use curve::Curve;
pub use fit::{Fit, Regime};
pub use json::VERSION;
pub use speed::parse_speed_table;
pub use take::{CalibrationOptions, MAX_SECONDS, calibrate};

#[cfg(test)]
pub(crate) mod tests;
