//! A plan to its time: `sum over units (unit + sum over calls f(phase, bytes)) + copies + distance`.

use crate::calibration::Calibration;
use crate::run::Residency;
use crate::strategy::{Area, Op, Plan, Span};

const LINE: usize = 64;

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
    let mut walk = Walk {
        calibration,
        residency,
        copied: copied_residency(plan, calibration, residency),
        pieces: [None; 2],
    };
    let costs = calibration.direction(plan.side);
    let mut prediction = Prediction {
        units_ns: plan.units.len() as f64 * costs.unit_ns,
        updates_ns: 0.0,
        copies_ns: 0.0,
        distance_ns: 0.0,
        residency,
    };
    for ops in &plan.units {
        let mut done = 0_u64;
        let mut is_first = true;
        let is_copied = ops.iter().any(|op| matches!(op, Op::Copy { .. }));
        for op in ops {
            prediction.distance_ns += walk.distance_ns(op, is_copied);
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

/// Where bytes are that were copied a moment ago.
fn copied_residency(plan: &Plan, calibration: &Calibration, residency: Residency) -> Residency {
    let unit_len = |ops: &Vec<Op>| {
        ops.iter()
            .map(|op| match op {
                Op::Copy { to, .. } => to.len as u64,
                _ => 0,
            })
            .sum::<u64>()
    };
    // What was read pushes out what was written: both count.
    let touched = 2 * plan.units.iter().map(unit_len).max().unwrap_or(0);
    let at_best = if touched <= calibration.host.l2_bytes {
        Residency::Hot
    } else if touched <= calibration.host.l3_bytes {
        Residency::L2Cold
    } else {
        Residency::MemoryCold
    };
    at_best.min(residency)
}

/// The kinds of work that distance is calibrated for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    InPlace,
    OutOfPlace,
    ToCold,
    CopyToHot,
    Copy,
}

struct Walk<'a> {
    calibration: &'a Calibration,
    residency: Residency,
    copied: Residency,
    /// For source and destination, a piece of memory that work goes on in: where it would go on, and
    /// its length so far.
    pieces: [Option<(usize, u64)>; 2],
}

impl Walk<'_> {
    fn distance_ns(&mut self, op: &Op, is_copied: bool) -> f64 {
        let (kind, span, residency) = match op {
            Op::InPlace(span) if span.area == Area::Source => (Kind::InPlace, span, self.residency),
            Op::InPlace(span) => (Kind::InPlace, span, self.copied),
            Op::Update { to, .. } if is_copied && self.copied == Residency::Hot => {
                (Kind::ToCold, to, self.residency)
            }
            Op::Update { from, .. } => (Kind::OutOfPlace, from, self.residency),
            Op::Copy { from, to } if to.area == Area::Scratch && self.copied == Residency::Hot => {
                (Kind::CopyToHot, from, self.residency)
            }
            Op::Copy { from, .. } => (Kind::Copy, from, self.residency),
        };
        self.piece_ns(kind, span, residency)
    }

    fn piece_ns(&mut self, kind: Kind, span: &Span, residency: Residency) -> f64 {
        let Some(cold) = self.calibration.cold(residency) else {
            return 0.0;
        };
        if span.len == 0 {
            return 0.0;
        }
        let curve = match kind {
            Kind::InPlace => &cold.in_place,
            Kind::OutOfPlace => &cold.out_of_place,
            Kind::ToCold => &cold.to_cold,
            Kind::CopyToHot => &cold.copy_to_hot,
            Kind::Copy => &cold.copy,
        };
        let piece = match span.area {
            Area::Source => self.pieces.first_mut(),
            Area::Destination => self.pieces.last_mut(),
            // Shared by all, so never new; a scratch buffer larger than the cache is.
            Area::Scratch => return curve.at(span.len as u64),
        };
        let Some(piece) = piece else { return 0.0 };
        let before = match *piece {
            Some((end, len)) if end == span.offset => len,
            // A buffer in the next cache line is no news to a prefetcher.
            Some((end, len)) if end.next_multiple_of(LINE) == span.offset => {
                len.next_multiple_of(LINE as u64)
            }
            _ => 0,
        };
        let after = before + span.len as u64;
        *piece = Some((span.offset + span.len, after));
        match before {
            0 => curve.at(after),
            _ => curve.at(after) - curve.at(before),
        }
    }
}
