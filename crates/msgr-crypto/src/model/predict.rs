//! A plan to its time: `sum over units (unit + sum over calls f(phase, bytes)) + copies`.

use serde::Serialize;

use crate::calibration::Calibration;
use crate::strategy::Plan;

/// Nanoseconds of a frame and what they are made of, for data in the caches of the core.
#[derive(Copy, Clone, PartialEq, Default, Debug, Serialize)]
pub struct Cost {
    /// All of it.
    pub ns: f64,
    /// Nonces, tags and finals.
    pub units_ns: f64,
    /// Update calls.
    pub updates_ns: f64,
    /// Copies.
    pub copies_ns: f64,
}

/// Whether all that a frame touches fits L2 together. The model is checked for such frames only.
pub fn fits_cache(plan: &Plan, calibration: &Calibration) -> bool {
    plan.footprint() as u64 <= calibration.host.l2_bytes
}

/// Predicts what `plan` takes.
pub fn predict(plan: &Plan, calibration: &Calibration) -> Cost {
    let costs = calibration.direction(plan.side);
    let mut cost = Cost {
        units_ns: plan.units.len() as f64 * costs.unit_ns,
        ..Cost::default()
    };
    for ops in &plan.units {
        let mut done = 0_u64;
        let mut is_first = true;
        for op in ops {
            let len = op.update_len() as u64;
            if op.is_copy {
                cost.copies_ns += calibration.copy.at(op.from.len as u64);
                continue;
            }
            if op.from != op.to && len > 0 {
                cost.updates_ns += costs.out_of_place.at(len);
            }
            if is_first && len > 0 {
                cost.updates_ns += costs.first_ns(len);
                is_first = false;
            }
            cost.updates_ns += costs.update_ns(done % 16, len);
            done += len;
        }
    }
    cost.ns = cost.units_ns + cost.updates_ns + cost.copies_ns;
    cost
}
