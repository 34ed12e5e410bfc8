//! Paired measurements to a ratio with its 95 % interval.

use std::fmt;

/// The geometric mean of ratios, and where the true one lies with 95 % confidence if the logarithms
/// of ratios are normally distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Geometric mean.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// The second of each pair by the first. None with fewer than six pairs, or with a value that is not
    /// positive.
    pub fn new(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 6 || pairs.iter().any(|&(a, b)| !(a > 0.0 && b > 0.0)) {
            return None;
        }
        let n = pairs.len() as f64;
        let logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = t_quantile(n - 1.0) * (variance / n).sqrt();
        Some(Self {
            mean: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
        })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ({:.4} to {:.4})", self.mean, self.low, self.high)
    }
}

/// The 97.5 % quantile of Student's t distribution for five or more degrees of freedom, from that
/// of the normal distribution (Cornish-Fisher expansion; Abramowitz and Stegun 26.7.5).
fn t_quantile(freedom: f64) -> f64 {
    let z: f64 = 1.959_963_985;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3)
}

/// The median; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check quantiles against a printed table.
    #[test]
    fn quantiles() {
        for (freedom, expected) in [(5.0, 2.571), (10.0, 2.228), (39.0, 2.023), (120.0, 1.980)] {
            let t = t_quantile(freedom);
            assert!((t - expected).abs() < 0.004, "{freedom}: {t}");
        }
    }

    /// Check that a constant ratio has no width, and noise has one that holds the truth.
    #[test]
    fn ratios() {
        let exact = Ratio::new(&[(100.0, 99.0); 6]).unwrap();
        assert!((exact.mean - 0.99).abs() < 1e-12 && exact.high - exact.low < 1e-12);
        let noisy: Vec<(f64, f64)> = (0..40)
            .map(|i| (100.0, if i % 2 == 0 { 110.0 } else { 100.0 / 1.1 }))
            .collect();
        let ratio = Ratio::new(&noisy).unwrap();
        assert!(ratio.low < 1.0 && 1.0 < ratio.high);
        assert_eq!(Ratio::new(&noisy[..5]), None);
        assert_eq!(Ratio::new(&[(0.0, 1.0); 6]), None);
    }

    /// Check the median of odd, even and no values.
    #[test]
    fn medians() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median([]).abs() < 1e-12);
    }
}
