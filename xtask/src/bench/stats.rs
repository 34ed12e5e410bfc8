//! Paired measurements to a ratio with its 95 % interval.

use std::fmt;

/// Share of the pairs, at either end, that has no say in the mean.
const TRIMMED: f64 = 0.1;

/// The trimmed geometric mean of ratios, and where the true one lies with 95 % confidence (Yuen: the variance
/// is that of the logarithms with their ends pulled in). A few pairs that something else disturbed do not move it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Trimmed geometric mean.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// The second of each pair by the first. None with fewer than five pairs, or with a value that is not
    /// positive.
    pub fn new(pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.len() < 5 || pairs.iter().any(|&(a, b)| !(a > 0.0 && b > 0.0)) {
            return None;
        }
        let mut logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
        logs.sort_by(f64::total_cmp);
        let n_cut = (TRIMMED * logs.len() as f64) as usize;
        let kept = n_cut..logs.len() - n_cut;
        let n_kept = kept.len() as f64;
        let mean = logs[kept.clone()].iter().sum::<f64>() / n_kept;
        let (lowest, highest) = (logs[kept.start], logs[kept.end - 1]);
        let pulled_in: Vec<f64> = logs.iter().map(|l| l.clamp(lowest, highest)).collect();
        let middle = pulled_in.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = pulled_in.iter().map(|l| (l - middle).powi(2)).sum();
        let half = t_quantile(n_kept - 1.0) * (squares / (n_kept * (n_kept - 1.0))).sqrt();
        Some(Self {
            mean: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
        })
    }

    /// Half of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ({:.4} to {:.4})", self.mean, self.low, self.high)
    }
}

/// The 97.5 % quantile of Student's t distribution for four or more degrees of freedom, from that
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
        // The expansion is least exact with the fewest degrees of freedom.
        for (freedom, expected, error) in [
            (4.0, 2.776, 0.008),
            (5.0, 2.571, 0.004),
            (10.0, 2.228, 0.004),
            (39.0, 2.023, 0.004),
            (120.0, 1.980, 0.004),
        ] {
            let t = t_quantile(freedom);
            assert!((t - expected).abs() < error, "{freedom}: {t}");
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
        assert_eq!(Ratio::new(&noisy[..4]), None);
        assert_eq!(Ratio::new(&[(0.0, 1.0); 6]), None);
    }

    /// Check that pairs which something else disturbed neither move the mean nor widen the interval much, and that
    /// 0.99 is distinguished from 1.
    #[test]
    fn disturbed_pairs() {
        let noise = |i: usize| 1.0 + 0.02 * (i as f64 * 2.4).sin();
        let calm: Vec<_> = (0..60).map(|i| (100.0, 99.0 * noise(i))).collect();
        let mut disturbed = calm.clone();
        (disturbed[3].1, disturbed[40].1) = (20.0, 30.0);
        let [calm, disturbed] = [calm, disturbed].map(|pairs| Ratio::new(&pairs).unwrap());
        assert!((disturbed.mean - calm.mean).abs() < 0.002, "{disturbed}");
        assert!(
            disturbed.half_width() < 1.3 * calm.half_width(),
            "{disturbed}"
        );
        assert!(disturbed.low < 0.99 && 0.99 < disturbed.high && disturbed.high < 1.0);
    }

    /// Check the median of odd, even and no values.
    #[test]
    fn medians() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median([]).abs() < 1e-12);
    }
}
