//! The model against the machine: every shape by every strategy, predicted and measured.

use std::time::Duration;

use msgr_crypto_ffi::Library;

use crate::calibration::Calibration;
use crate::measure::{Case, Effort, MeasureError, Reference, measure};
use crate::model::{fits_cache, predict};
use crate::run::Runner;
use crate::shapes::Shape;
use crate::strategy::{Plan, Strategy};

/// A prediction beside the measured time.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Checked {
    /// Index of the shape in what was given.
    pub shape: usize,
    /// How it was done.
    pub strategy: Strategy,
    /// Nanoseconds of a frame that the model predicts.
    pub predicted_ns: f64,
    /// Median nanoseconds of a frame, the mean of two measurements.
    pub measured_ns: f64,
    /// Difference of these two, as a share: what cannot be predicted.
    pub spread: f64,
    /// Something else slowed the core all the time: the measured figure is less exact.
    pub is_disturbed: bool,
}

impl Checked {
    /// Error of the prediction as a share of the measured time; below 0 when too little is predicted.
    pub fn error(&self) -> f64 {
        self.predicted_ns / self.measured_ns - 1.0
    }
}

/// How long to measure: fifteen samples of 0.15 ms of each frame and strategy.
const EFFORT: Effort = Effort {
    rounds: 15,
    sample_ns: 150_000.0,
    max_time: Duration::MAX,
};
/// How long to sleep in all, at most, while other work slows the core.
const PATIENCE: Duration = Duration::from_secs(60);

/// Predicts and measures every shape by what Ceph does and by the alternatives, by shape and strategy.
/// Frames that do not fit L2 are left out. All take turns, and are measured twice.
///
/// # Errors
/// As [`crate::calibration::calibrate`].
pub fn verify(
    library: &Library,
    calibration: &Calibration,
    shapes: &[Shape],
) -> Result<Vec<Checked>, MeasureError> {
    let mut reference = Reference::new(library, PATIENCE)?;
    let mut cases = Vec::new();
    let mut checked = Vec::new();
    for (index, shape) in shapes.iter().enumerate() {
        let alternatives = Strategy::alternatives(shape.side);
        for strategy in [Strategy::ceph(shape.side)].into_iter().chain(alternatives) {
            let plan = Plan::new(shape, strategy);
            if fits_cache(&plan, calibration) {
                cases.push(Case::of_runner(Runner::new(library, &plan)?));
                checked.push((index, strategy, predict(&plan, calibration).ns));
            }
        }
    }
    let first = measure(&mut cases, &mut reference, EFFORT)?;
    let second = measure(&mut cases, &mut reference, EFFORT)?;
    let checked = checked.into_iter().zip(first.into_iter().zip(second));
    Ok(checked
        .map(|((shape, strategy, predicted_ns), (a, b))| {
            let measured_ns = (a.0 + b.0) / 2.0;
            Checked {
                shape,
                strategy,
                predicted_ns,
                measured_ns,
                spread: (a.0 - b.0).abs() / measured_ns,
                is_disturbed: a.1 || b.1,
            }
        })
        .collect())
}
