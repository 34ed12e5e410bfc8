//! Student's t distribution: a statistic to a probability, and a probability to a quantile.

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
    incomplete_beta(df / (df + t * t), df / 2.0, 0.5).clamp(0.0, 1.0)
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

/// The regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun,
/// 26.5.8) where that converges fast, else by symmetry.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction, evaluated from the front (modified Lentz).
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let nonzero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..=300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / nonzero(1.0 + term * d);
            c = nonzero(1.0 + term / c);
            step = c * d;
            value *= step;
        }
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// Logarithm of the gamma function for positive arguments: Stirling's series (Abramowitz and
/// Stegun, 6.1.41) after shifting the argument up.
fn ln_gamma(x: f64) -> f64 {
    let mut shift = 0.0;
    let mut x = x;
    while x < 10.0 {
        shift += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
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
