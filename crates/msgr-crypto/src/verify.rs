//! The model against the machine: every shape by every strategy, predicted and measured.

use std::time::Duration;

use msgr_crypto_ffi::Library;

use crate::calibration::Calibration;
use crate::measure::{Case, Effort, MeasureError, Reference, measure};
use crate::model::{Prediction, predict};
use crate::run::{Memory, Residency, Runner};
use crate::shapes::Shape;
use crate::strategy::{Plan, Strategy};

/// A prediction beside the measured time.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Index of the shape in what was given.
    pub shape: usize,
    /// How it was done.
    pub strategy: Strategy,
    /// Where the data was asked to be.
    pub residency: Residency,
    /// What the model says.
    pub prediction: Prediction,
    /// Median nanoseconds of a frame.
    pub measured_ns: f64,
    /// Something else slowed the core all the time: the measured figure is less exact.
    pub is_disturbed: bool,
}

impl Checked {
    /// Error of the prediction as a share of the measured time; below 0 when too little is predicted.
    pub fn error(&self) -> f64 {
        self.prediction.ns() / self.measured_ns - 1.0
    }
}

/// How long to sleep in all, at most, while other work slows the core.
const PATIENCE: Duration = Duration::from_secs(30);

/// Predicts and measures every shape by what Ceph does and by the alternatives.
///
/// # Errors
/// As [`crate::calibration::calibrate`].
pub fn verify(
    library: &Library,
    calibration: &Calibration,
    shapes: &[Shape],
    residencies: &[Residency],
    effort: Effort,
) -> Result<Vec<Checked>, MeasureError> {
    let mut checked = Vec::new();
    let mut reference = Reference::new(library, PATIENCE)?;
    for residency in residencies {
        let Some(ring_bytes) = residency.ring_bytes(&calibration.host) else {
            continue;
        };
        let mut memory = Memory::default();
        for (index, shape) in shapes.iter().enumerate() {
            let strategies = [Strategy::now(shape.side)]
                .into_iter()
                .chain(Strategy::alternatives(shape.side));
            for strategy in strategies {
                let plan = Plan::new(shape, strategy);
                let prediction = predict(&plan, calibration, *residency);
                let mut runner = Runner::new(library, plan, ring_bytes)?;
                runner.begin(&mut memory);
                let case = Case::new(move |n, memory: &mut Memory| runner.run(n, memory));
                let measured = measure(&mut [case], &mut memory, &mut reference, effort)?;
                checked.push(Checked {
                    shape: index,
                    strategy,
                    residency: *residency,
                    prediction,
                    measured_ns: measured.ns.first().copied().unwrap_or(0.0),
                    is_disturbed: measured.n_disturbed > 0,
                });
            }
        }
    }
    Ok(checked)
}
