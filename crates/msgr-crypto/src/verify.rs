//! The model against the machine: every shape by every strategy, predicted and measured.

use std::time::Duration;

use msgr_crypto_ffi::Library;

use crate::calibration::Calibration;
use crate::measure::{Case, Effort, MeasureError, Reference, measure};
use crate::model::{Prediction, predict};
use crate::run::{Memory, Residency, Runner};
use crate::shapes::{Shape, Side};
use crate::strategy::{Area, Op, Plan, Span, Strategy};

/// A prediction beside the measured time.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Index of the shape in what was given.
    pub shape: usize,
    /// How it was done.
    pub strategy: Strategy,
    /// Where the data was asked to be.
    pub residency: Residency,
    /// What the model says, for memory that is as far away as it is at this moment.
    pub prediction: Prediction,
    /// How many times as far away memory was as when it was calibrated; 1 for data in caches.
    pub distance_factor: f64,
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
const PATIENCE: Duration = Duration::from_secs(120);

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
        let mut probe = match residency {
            Residency::MemoryCold => Probe::new(library, calibration, ring_bytes, &mut memory)?,
            _ => None,
        };
        for (index, shape) in shapes.iter().enumerate() {
            let strategies = [Strategy::now(shape.side)]
                .into_iter()
                .chain(Strategy::alternatives(shape.side));
            for strategy in strategies {
                let plan = Plan::new(shape, strategy);
                let mut prediction = predict(&plan, calibration, *residency);
                let mut runner = Runner::new(library, plan, ring_bytes)?;
                runner.begin(&mut memory);
                let mut cases = vec![Case::new(|n, memory: &mut Memory| runner.run(n, memory))];
                let mut distance_of = None;
                if let Some(Probe {
                    runner,
                    hot_ns,
                    calibrated_ns,
                }) = &mut probe
                {
                    distance_of = Some((*hot_ns, *calibrated_ns));
                    cases.push(Case::new(|n, memory: &mut Memory| runner.run(n, memory)));
                }
                let measured = measure(&mut cases, &mut memory, &mut reference, effort)?;
                let distance_factor = match (distance_of, measured.ns.get(1)) {
                    (Some((hot_ns, calibrated_ns)), Some(now)) if calibrated_ns > 0.0 => {
                        ((now - hot_ns) / calibrated_ns).clamp(0.2, 5.0)
                    }
                    _ => 1.0,
                };
                prediction.distance_ns *= distance_factor;
                checked.push(Checked {
                    shape: index,
                    strategy,
                    residency: *residency,
                    prediction,
                    distance_factor,
                    measured_ns: measured.ns.first().copied().unwrap_or(0.0),
                    is_disturbed: measured.n_disturbed > 0,
                });
            }
        }
    }
    Ok(checked)
}

/// Reads of distant memory that are measured beside each frame. How far away memory is depends on the
/// pages that the kernel happened to give, and in a virtual machine on those that the host gave.
struct Probe<'lib> {
    runner: Runner<'lib>,
    /// What it takes without distance.
    hot_ns: f64,
    /// What distance added when it was calibrated.
    calibrated_ns: f64,
}

impl<'lib> Probe<'lib> {
    const BYTES: usize = 1024;

    /// Reads from `memory`, and leaves it as it is.
    fn new(
        library: &'lib Library,
        calibration: &Calibration,
        ring_bytes: usize,
        memory: &mut Memory,
    ) -> Result<Option<Self>, MeasureError> {
        let Some(cold) = &calibration.memory_cold else {
            return Ok(None);
        };
        let span = |area| Span {
            area,
            offset: 0,
            len: Self::BYTES,
        };
        let copy = Op::Copy {
            from: span(Area::Source),
            to: span(Area::Scratch),
        };
        let plan = Plan {
            side: Side::Tx,
            units: vec![vec![copy]],
            source_len: Self::BYTES,
            destination_len: 0,
            scratch_len: Self::BYTES,
        };
        let mut runner = Runner::new(library, plan, ring_bytes)?;
        runner.begin(memory);
        let bytes = Self::BYTES as u64;
        Ok(Some(Self {
            runner,
            hot_ns: calibration.encrypt.unit_ns + calibration.copy.at(bytes),
            calibrated_ns: cold.copy_to_hot.at(bytes),
        }))
    }
}
