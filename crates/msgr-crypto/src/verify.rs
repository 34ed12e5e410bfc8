//! The model against the machine: every shape by every strategy, predicted and measured.

use std::time::Duration;

use msgr_crypto_ffi::Library;

use crate::calibration::{Anchors, Calibration};
use crate::measure::{Case, Effort, MeasureError, Reference, measure};
use crate::model::{Prediction, predict, residency_of};
use crate::run::{Distance, Memory, Residency, Runner};
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
    /// What it says with the cost of distance as it was while this was measured: memory of a virtual
    /// machine is not as far away in one minute as in another.
    pub prediction_now: Prediction,
    /// Median nanoseconds of a frame, the mean of two measurements.
    pub measured_ns: f64,
    /// By how much these two are apart, as a share: what cannot be predicted.
    pub spread: f64,
    /// Something else slowed the core all the time: the measured figure is less exact.
    pub is_disturbed: bool,
}

impl Checked {
    /// Error of the prediction as a share of the measured time; below 0 when too little is predicted.
    pub fn error(&self) -> f64 {
        self.prediction.ns() / self.measured_ns - 1.0
    }

    /// The same, without what memory changed since the calibration.
    pub fn error_now(&self) -> f64 {
        self.prediction_now.ns() / self.measured_ns - 1.0
    }
}

/// How long to sleep in all, at most, while other work slows the core.
const PATIENCE: Duration = Duration::from_secs(60);

/// Predicts and measures every shape by what Ceph does and by the alternatives.
///
/// A frame that does not fit the cache that its data is asked to be in is left out there: it is among
/// those further away. All frames take turns with each other and with those that costs of distance are told from, and are
/// measured twice.
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
        if calibration.cold(*residency).is_none() && *residency != Residency::Hot {
            continue;
        }
        let Some(distance) = residency.distance(&calibration.host) else {
            continue;
        };
        let mut memory = Memory::default();
        let mut cases = Vec::new();
        let mut frames = Vec::new();
        for (index, shape) in shapes.iter().enumerate() {
            let strategies = [Strategy::now(shape.side)]
                .into_iter()
                .chain(Strategy::alternatives(shape.side));
            for strategy in strategies {
                let plan = Plan::new(shape, strategy);
                if residency_of(&plan, calibration, *residency) != *residency {
                    continue;
                }
                frames.push((index, strategy, plan.clone()));
                cases.push(case(library, plan, distance, &mut memory)?);
            }
        }
        let anchors = match residency {
            Residency::Hot => None,
            _ => Anchors::add(
                library,
                &calibration.host,
                *residency,
                &mut cases,
                &mut memory,
            )?,
        };
        let first = measure(&mut cases, &mut memory, &mut reference, effort)?;
        let second = measure(&mut cases, &mut memory, &mut reference, effort)?;
        let of = |index: usize| {
            let pair = [&first.ns, &second.ns].map(|ns| ns.get(index).copied().unwrap_or(0.0));
            let mean = (pair[0] + pair[1]) / 2.0;
            (mean, (pair[0] - pair[1]).abs() / mean)
        };
        let is_disturbed = |index: usize| {
            let disturbed = |list: &[bool]| list.get(index).copied().unwrap_or(true);
            disturbed(&first.is_disturbed) || disturbed(&second.is_disturbed)
        };
        let mut now = calibration.clone();
        if let Some(anchors) = anchors {
            let ns: Vec<f64> = (0..cases.len()).map(|index| of(index).0).collect();
            let costs = Some(anchors.costs(calibration, &ns));
            match residency {
                Residency::L2Cold => now.l2_cold = costs,
                _ => now.memory_cold = costs,
            }
        }
        for (case, (shape, strategy, plan)) in frames.into_iter().enumerate() {
            let (measured_ns, spread) = of(case);
            checked.push(Checked {
                shape,
                strategy,
                residency: *residency,
                prediction: predict(&plan, calibration, *residency),
                prediction_now: predict(&plan, &now, *residency),
                measured_ns,
                spread,
                is_disturbed: is_disturbed(case),
            });
        }
    }
    Ok(checked)
}

/// A frame in memory of its own when it is to be hot, in the memory of all otherwise.
fn case<'lib>(
    library: &'lib Library,
    plan: Plan,
    distance: Distance,
    memory: &mut Memory,
) -> Result<Case<'lib>, MeasureError> {
    let mut runner = Runner::new(library, plan, distance)?;
    if distance == Distance::HOT {
        let mut memory = Memory::default();
        runner.begin(&mut memory);
        return Ok(Case::new(move |n, _: &mut Memory| {
            runner.run(n, &mut memory)
        }));
    }
    let mut runner = runner.unverified();
    runner.join(memory);
    Ok(Case::of_runner(runner))
}
