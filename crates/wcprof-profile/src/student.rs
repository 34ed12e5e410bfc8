//! Student's t distribution: a statistic to a probability, and a probability to a quantile.

use statrs::function::beta::checked_beta_reg;

/// Probability that a value with Student's t distribution of `df` degrees of freedom lies further
/// from 0 than `t`, on either side; 0 to 1. `df` need not be whole; 1 when a value is no number.
pub fn two_sided_p(t: f64, df: f64) -> f64 {
    if t.is_nan() || df.is_nan() || df <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    // Abramowitz and Stegun, 26.5.27.
    let p = checked_beta_reg(df / 2.0, 0.5, df / (df + t * t));
    p.map_or(1.0, |p| p.clamp(0.0, 1.0))
}

/// The value that a |t| of `df` degrees of freedom passes with probability `p` (0.05 for the
/// two-sided 95 % interval).
pub fn two_sided_quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided_p(high, df) > p && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if two_sided_p(middle, df) > p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check quantiles against a printed table of the distribution.
    #[test]
    fn table() {
        for (p, df, t) in [
            (0.05, 1.0, 12.706),
            (0.05, 4.0, 2.776),
            (0.05, 16.0, 2.120),
            (0.01, 16.0, 2.921),
            (0.001, 32.0, 3.622),
            (0.05, 120.0, 1.980),
        ] {
            let found = two_sided_quantile(p, df);
            assert!((found - t).abs() < 1e-3, "{p} {df}: {found}");
        }
    }

    /// Check that a probability of a quantile is the one asked for, far into the tail, and that
    /// values that are no numbers are never significant.
    #[test]
    fn inverse() {
        for df in [3.5, 16.0, 31.7] {
            for p in [0.5, 1e-3, 1e-7] {
                let found = two_sided_p(two_sided_quantile(p, df), df);
                assert!((found / p - 1.0).abs() < 1e-6, "{df} {p} {found}");
            }
        }
        assert_eq!(two_sided_p(f64::NAN, 16.0), 1.0);
        assert_eq!(two_sided_p(f64::INFINITY, 16.0), 0.0);
    }
}
