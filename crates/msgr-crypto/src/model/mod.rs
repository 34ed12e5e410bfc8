//! Shapes and a calibration to nanoseconds, without running anything, and to what they mean.

mod predict;
mod report;

pub use predict::{Cost, fits_cache, predict};
pub(crate) use report::saved_share;
pub use report::{
    Alternative, FrameLoad, FrameReport, Load, Report, SideReport, Verdict, WORTHWHILE,
};

#[cfg(test)]
mod tests;
