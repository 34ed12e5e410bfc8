//! A plan to its time: `sum over units (unit + sum over calls f(phase, bytes)) + copies + distance`.

use crate::calibration::Calibration;
use crate::run::Residency;
use crate::strategy::{Op, Plan};

/// Nanoseconds of a frame and what they are made of.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Nonces, tags and finals.
    pub units_ns: f64,
    /// Update calls on hot data.
    pub updates_ns: f64,
    /// Copies of hot data.
    pub copies_ns: f64,
    /// What the distance of the data adds.
    pub distance_ns: f64,
    /// Where the data was taken to be: further away than asked for when a frame is larger than the
    /// cache.
    pub residency: Residency,
}

impl Prediction {
    /// All of it.
    pub fn ns(&self) -> f64 {
        self.units_ns + self.updates_ns + self.copies_ns + self.distance_ns
    }
}

/// Where the data of a frame is at best: a frame that does not fit a cache is not in it when it comes
/// again.
pub fn residency_of(plan: &Plan, calibration: &Calibration, asked: Residency) -> Residency {
    let footprint = plan.footprint() as u64;
    let at_best = if footprint <= calibration.host.l2_bytes {
        Residency::Hot
    } else if footprint <= calibration.host.l3_bytes {
        Residency::L2Cold
    } else {
        Residency::MemoryCold
    };
    asked.max(at_best)
}

/// Predicts what `plan` takes when its data is this far away. Distance that was not calibrated counts
/// as nothing.
pub fn predict(plan: &Plan, calibration: &Calibration, asked: Residency) -> Prediction {
    let residency = residency_of(plan, calibration, asked);
    let costs = calibration.direction(plan.side);
    let mut prediction = Prediction {
        units_ns: plan.units.len() as f64 * costs.unit_ns,
        updates_ns: 0.0,
        copies_ns: 0.0,
        distance_ns: calibration
            .cold(residency)
            .map_or(0.0, |cold| cold.distance_ns(plan)),
        residency,
    };
    for ops in &plan.units {
        let mut done = 0_u64;
        let mut is_first = true;
        for op in ops {
            let len = match op {
                Op::Copy { from, .. } => {
                    prediction.copies_ns += calibration.copy.at(from.len as u64);
                    continue;
                }
                Op::InPlace(span) => span.len as u64,
                Op::Update { from, .. } => {
                    let len = from.len as u64;
                    if len > 0 {
                        prediction.updates_ns += costs.out_of_place.at(len);
                    }
                    len
                }
            };
            if is_first && len > 0 {
                prediction.updates_ns += costs.first_ns(len);
                is_first = false;
            }
            prediction.updates_ns += costs.update_ns(done % 16, len);
            done += len;
        }
    }
    prediction
}
