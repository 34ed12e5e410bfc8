//! How sure a weight is: its sums by slice of time to a 95 % confidence interval.
//!
//! Samples of a thread that follow each other are alike, so that their number says little. What a
//! weight would be in another recording of the same length and load is told by how it varied
//! within this one. The slow part of that variation is measured: the weights by slice are
//! projected on the first cosines over the recording (the *equal-weighted cosine* estimator of the
//! long-run variance: Lazarus, Lewis, Stock and Watson, "HAR Inference: Recommendations for
//! Practice", Journal of Business & Economic Statistics 36, 2018). Each projection of a steady
//! process has mean 0 and the variance of the sum itself, and projections hardly depend on each
//! other, so that their mean square has about as many degrees of freedom as there are cosines.
//! `docs/sampling-model.md` says more, and how far it holds.

use std::f64::consts::{PI, SQRT_2};

use crate::slices::{MAX_SLICES, Slices, TimeAxis};
use crate::student::two_sided_quantile;

/// Most cosines: the degrees of freedom of an interval.
const MAX_TERMS: usize = 12;
/// Fewer cosines than these say nothing.
const MIN_TERMS: usize = 4;

/// A 95 % confidence interval, ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Lower end.
    pub low: u64,
    /// Upper end.
    pub high: u64,
}

/// What is kept of a weight's course over time: its products with the cosines. Courses of parts
/// add up to that of the whole.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Course([f32; MAX_TERMS]);

impl Course {
    /// Adds the course of another part.
    pub fn add(&mut self, other: &Self) {
        for (sum, term) in self.0.iter_mut().zip(&other.0) {
            *sum += term;
        }
    }
}

/// Gives intervals to the weights of one recording.
#[derive(Clone, Debug)]
pub struct Estimator {
    /// By slice: its mean of each cosine, scaled.
    basis: Vec<[f32; MAX_TERMS]>,
    n_terms: usize,
    quantile: f64,
}

impl Estimator {
    /// For weights on `axis`, observed at `rate_hz` ticks a second. `None` when it is too short to
    /// tell.
    pub fn new(axis: &TimeAxis, rate_hz: u32) -> Option<Self> {
        // As if there were no gaps: what does not change while it is recorded has no course.
        let duration = axis.covered_ns() as f64;
        let n_slices = axis.n_slices();
        let bounds = |slice: usize| {
            let start = slice as u64 * axis.slice_ns;
            let end = (start + axis.slice_ns).min(axis.duration_ns());
            let [start, end] = [start, end].map(|time| axis.covered_until(time) as f64);
            (slice, start, end)
        };
        let covered: Vec<_> = (0..n_slices).map(bounds).collect();
        let covered = covered.iter().filter(|(_, start, end)| start < end);
        // No finer than what ticks can see, nor than slices.
        let n_ticks = duration / 1e9 * f64::from(rate_hz);
        let most = covered.clone().count() / 2;
        let n_terms = MAX_TERMS.min((n_ticks / 4.0) as usize).min(most);
        if n_terms < MIN_TERMS || n_slices > MAX_SLICES {
            return None;
        }
        let mut basis = vec![[0.0; MAX_TERMS]; n_slices];
        for term in 0..n_terms {
            let k = PI * (term + 1) as f64 / duration;
            // The mean over the slice, so that what does not change has no course.
            let mean = |start: f64, end: f64| {
                SQRT_2 * ((k * end).sin() - (k * start).sin()) / (k * (end - start))
            };
            let square: f64 = covered
                .clone()
                .map(|&(_, start, end)| mean(start, end).powi(2) * (end - start) / duration)
                .sum();
            for &(slice, start, end) in covered.clone() {
                let row = &mut basis[slice];
                row[term] = (mean(start, end) / square.sqrt()) as f32;
            }
        }
        Some(Self {
            basis,
            n_terms,
            quantile: two_sided_quantile(0.05, n_terms as f64),
        })
    }

    /// Degrees of freedom of a variance.
    pub fn degrees_of_freedom(&self) -> f64 {
        self.n_terms as f64
    }

    /// The course of a row's weight.
    pub fn course(&self, slices: &Slices) -> Course {
        let mut course = Course::default();
        for (slice, weight) in slices.iter() {
            // Weight at the very end of the recording can lie in a slice of its own.
            let at = slice.min(self.basis.len() - 1);
            for (sum, factor) in course.0.iter_mut().zip(&self.basis[at]) {
                *sum += weight * factor;
            }
        }
        course
    }

    /// Variance of a weight, ns squared, as far as it does not follow `factor` times what has the other course.
    pub fn variance(&self, course: &Course, factor: f64, other: &Course) -> f64 {
        self.mean_square(|term| f64::from(course.0[term]) - factor * f64::from(other.0[term]))
    }

    /// The interval of a weight that is a part of `whole` (both with their courses), as a share
    /// of it; the whole itself is taken as it is.
    ///
    /// The share's variance says how many independent samples would be as sure as this weight;
    /// Wilson's score interval for so many then also holds for rare and for nearly whole shares.
    pub fn interval(&self, weight: u64, course: &Course, whole: u64, of: &Course) -> Interval {
        let exactly = Interval {
            low: weight,
            high: weight,
        };
        if weight == 0 || weight >= whole {
            return exactly;
        }
        let total = whole as f64;
        let share = weight as f64 / total;
        let variance = self.variance(course, share, of) / (total * total);
        let spread = share * (1.0 - share);
        // What single precision leaves of a weight that does not vary.
        if variance <= spread * 1e-13 {
            return exactly;
        }
        let t2 = self.quantile * self.quantile;
        // t² / n, with n the effective number of samples.
        let r = t2 * variance / spread;
        let middle = (share + r / 2.0) / (1.0 + r);
        let half = (r * spread + r * r / 4.0).sqrt() / (1.0 + r);
        Interval {
            low: (((middle - half).max(0.0) * total) as u64).min(weight),
            high: (((middle + half).min(1.0) * total) as u64).clamp(weight, whole),
        }
    }

    fn mean_square(&self, term: impl Fn(usize) -> f64) -> f64 {
        (0..self.n_terms).map(|j| term(j).powi(2)).sum::<f64>() / self.n_terms as f64
    }
}
