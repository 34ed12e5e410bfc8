//! Plans and a calibration to nanoseconds, without running anything.

mod predict;

pub use predict::{Prediction, predict, residency_of};
