//! The table of update costs to `b + c * n`, for explanation: what a call costs, what a byte costs, and
//! the chunk at which half the peak is reached. Predictions use the table itself.

use serde::Serialize;

use super::DirectionCosts;
use crate::measure::median;

/// A single line is good enough when no point is further off it.
const GOOD_ERROR: f64 = 0.15;
/// Points of a regime of its own.
const MIN_POINTS: usize = 4;
const SMALLEST: u64 = 16;
const LARGEST: u64 = 65536;

/// Lines through the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fit {
    /// One regime, or two where the kernel has two code paths.
    pub regimes: Vec<Regime>,
}

/// A line through part of the table.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Regime {
    /// Smallest size, bytes.
    pub from_bytes: u64,
    /// Largest size, bytes.
    pub to_bytes: u64,
    /// What a call costs, nanoseconds.
    pub call_ns: f64,
    /// What a byte costs, nanoseconds.
    pub byte_ns: f64,
    /// Median error of the line at a point, as a share of the point.
    pub median_error: f64,
    /// Largest error.
    pub max_error: f64,
}

impl Regime {
    /// Chunk at which a call costs as much as its bytes: half of the peak throughput.
    pub fn half_peak_bytes(&self) -> f64 {
        self.call_ns.max(0.0) / self.byte_ns
    }
}

impl Fit {
    /// Lines through the update costs of whole blocks, 16 B to 64 KiB.
    pub fn new(costs: &DirectionCosts) -> Self {
        let mut points: Vec<(u64, f64)> = Vec::new();
        for (bytes, ns) in costs.update.points().iter().copied() {
            let is_used = (SMALLEST..=LARGEST).contains(&bytes) && ns > 0.0;
            // A dense table would count small sizes a hundred times: about four points an octave.
            let is_far = |(last, _): &(u64, f64)| bytes as f64 >= *last as f64 * 1.18;
            if is_used && points.last().is_none_or(is_far) {
                points.push((bytes, ns));
            }
        }
        let whole = line(&points);
        let mut regimes: Vec<Regime> = whole.into_iter().collect();
        if regimes.first().is_some_and(|r| r.max_error > GOOD_ERROR) {
            let split = (MIN_POINTS..=points.len().saturating_sub(MIN_POINTS))
                .filter_map(|at| Some([line(&points[..at])?, line(&points[at..])?]))
                .min_by(|a, b| worst(a).total_cmp(&worst(b)));
            if let Some(split) = split
                && worst(&split) < 0.7 * regimes[0].max_error
            {
                regimes = split.to_vec();
            }
        }
        Self { regimes }
    }

    /// The line of large chunks; `None` of an empty table.
    pub fn bulk(&self) -> Option<&Regime> {
        self.regimes.last()
    }
}

fn worst(regimes: &[Regime; 2]) -> f64 {
    regimes[0].max_error.max(regimes[1].max_error)
}

/// Least squares of relative errors; `None` when two points do not make a rising line.
fn line(points: &[(u64, f64)]) -> Option<Regime> {
    let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let x = *x as f64;
        let weight = 1.0 / (y * y);
        w += weight;
        wx += weight * x;
        wxx += weight * x * x;
        wy += weight * y;
        wxy += weight * x * y;
    }
    let determinant = w * wxx - wx * wx;
    let byte_ns = (w * wxy - wx * wy) / determinant;
    let call_ns = (wxx * wy - wx * wxy) / determinant;
    if !(byte_ns.is_finite() && call_ns.is_finite() && byte_ns > 0.0) {
        return None;
    }
    let errors: Vec<f64> = points
        .iter()
        .map(|(x, y)| ((call_ns + byte_ns * *x as f64) / y - 1.0).abs())
        .collect();
    Some(Regime {
        from_bytes: points.first()?.0,
        to_bytes: points.last()?.0,
        call_ns,
        byte_ns,
        median_error: median(&errors),
        max_error: errors.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibration::Curve;

    fn costs(f: impl Fn(u64) -> f64) -> DirectionCosts {
        let sizes = (1..=64)
            .map(|n| 16 * n)
            .chain([2048, 4096, 8192, 16384, 65536]);
        DirectionCosts {
            update: Curve::new(sizes.map(|n| (n, f(n))).collect()),
            ..DirectionCosts::default()
        }
    }

    /// Check that a line is found as it is, and half its peak is where call and bytes cost the same.
    #[test]
    fn one_regime() {
        let fit = Fit::new(&costs(|n| 22.0 + 0.17 * n as f64));
        let [regime] = fit.regimes[..] else {
            panic!("{fit:?}")
        };
        assert!((regime.call_ns - 22.0).abs() < 1e-6, "{regime:?}");
        assert!((regime.byte_ns - 0.17).abs() < 1e-9, "{regime:?}");
        assert!((regime.half_peak_bytes() - 129.4).abs() < 0.1);
        assert!(regime.max_error < 1e-9);
    }

    /// Check that a step between two code paths is found where it is.
    #[test]
    fn two_regimes() {
        let fit = Fit::new(&costs(|n| match n {
            0..=256 => 15.0 + 0.037 * n as f64,
            _ => 47.0 + 0.043 * n as f64,
        }));
        let [small, large] = fit.regimes[..] else {
            panic!("{fit:?}")
        };
        assert!(small.to_bytes <= 256 && large.from_bytes > 256, "{fit:?}");
        assert!((large.call_ns - 47.0).abs() < 1e-6);
    }

    /// Check that too few points, or a table that does not rise, give no line.
    #[test]
    fn no_line() {
        assert!(Fit::new(&DirectionCosts::default()).bulk().is_none());
        assert!(
            Fit::new(&costs(|_| 10.0))
                .bulk()
                .is_none_or(|r| r.byte_ns < 1e-9)
        );
    }
}
