//! Measured points to a value at any size.

use serde::{Deserialize, Serialize};

use crate::file_error::{FileError, check};

/// Most points of a curve in a file.
const MAX_POINTS: usize = 1000;
/// Longest time that a point may have: beyond it, it is no time of a call.
const MAX_NS: f64 = 1e11;

/// Nanoseconds by bytes, at growing sizes.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve {
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// From points; they are sorted.
    pub fn new(mut points: Vec<(u64, f64)>) -> Self {
        points.sort_by_key(|(bytes, _)| *bytes);
        Self { points }
    }

    /// From sizes in memory.
    pub(super) fn by_size(points: impl IntoIterator<Item = (usize, f64)>) -> Self {
        let points = points.into_iter();
        Self::new(points.map(|(bytes, ns)| (bytes as u64, ns)).collect())
    }

    /// The points: bytes and nanoseconds.
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// By straight lines between points; below the first as the first; beyond the last in proportion
    /// to the line between the last two. 0 without points.
    pub fn at(&self, bytes: u64) -> f64 {
        let points = &self.points;
        let after = points.partition_point(|(at, _)| *at < bytes);
        let Some(first) = points.first() else {
            return 0.0;
        };
        if after == 0 || points.len() == 1 {
            return first.1;
        }
        let high = after.min(points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[high - 1], points[high]);
        if bytes == x1 {
            return y1;
        }
        y0 + (y1 - y0) * (bytes as f64 - x0 as f64) / (x1 as f64 - x0 as f64)
    }

    /// Nothing that a file may hold and a measurement could not give. Corrections to another curve
    /// (`signed`) may be negative.
    pub(super) fn check(&self, field: &str, signed: bool) -> Result<(), FileError> {
        let points = &self.points;
        check(!points.is_empty(), field, "has no points")?;
        check(points.len() <= MAX_POINTS, field, "has too many points")?;
        let grow = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        check(grow, field, "has sizes that do not grow")?;
        let is_time = |(_, ns): &(u64, f64)| ns.abs() <= MAX_NS && (signed || *ns >= 0.0);
        let are_times = points.iter().all(is_time);
        check(are_times, field, "has a time that no call can take")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values at points, between them, below and beyond them, and with few points.
    #[test]
    fn interpolation() {
        let curve = Curve::new(vec![(100, 20.0), (16, 10.0), (200, 40.0)]);
        for (bytes, ns) in [(0, 10.0), (16, 10.0), (58, 15.0), (100, 20.0), (150, 30.0)] {
            assert_eq!(curve.at(bytes), ns, "{bytes}");
        }
        assert_eq!(curve.at(300), 60.0);
        assert_eq!(Curve::new(vec![(5, 7.0)]).at(1000), 7.0);
        assert_eq!(Curve::default().at(1), 0.0);
    }

    /// Check that curves from outside are refused when they are none.
    #[test]
    fn checks() {
        let check = |points: &[(u64, f64)], signed| {
            let points = points.to_vec();
            Curve { points }.check("x", signed).is_ok()
        };
        assert!(check(&[(0, 0.0), (1, 1.0)], false));
        assert!(check(&[(0, -1.0)], true));
        for bad in [
            &[][..],
            &[(0, -1.0)],
            &[(1, 1.0), (1, 2.0)],
            &[(2, 1.0), (1, 2.0)],
            &[(0, f64::NAN)],
            &[(0, f64::INFINITY)],
        ] {
            assert!(!check(bad, false), "{bad:?}");
        }
    }
}
