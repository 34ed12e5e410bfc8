//! One figure of many like members to how far each is from the others: median, MAD, and the chance of such a
//! distance.
//!
//! The distance is measured in deviations, of which the MAD (median absolute deviation) times 1.4826 is one for a
//! normal distribution, and which a few unlike members do not change. To the spread of the members comes what a
//! member's own figure is less precise than the others', and how precise the median is. It is measured twice, of the
//! figures and of their logarithms, and the more likely of the two counts: times spread evenly, or by factors, and a
//! long tail of factors is no outlier.

use crate::student::{two_sided_p, two_sided_quantile};

/// Deviations of a normal distribution that the MAD is.
const PER_MAD: f64 = 1.4826;
/// Degrees of freedom that each value gives a deviation by the MAD: its efficiency.
const FREEDOM_OF_MAD: f64 = 0.37;
/// Variance of a median of many in that of their mean, pi / 2.
const OF_MEDIAN: f64 = 1.571;
/// Added to figures before their logarithm is taken, at the least.
const LEAST: f64 = 1e-6;

/// A figure of one member, as far as its recording tells.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its variance from recording to recording; `None` when the recording is too short to tell.
    pub variance: Option<f64>,
    /// What the variance rests on.
    pub degrees_of_freedom: f64,
}

/// How a figure spreads over members.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// Median distance from the median.
    pub mad: f64,
    plain: Scale,
    logarithms: Scale,
    /// What is added to a figure before its logarithm is taken: what it is precise to.
    grain: f64,
    n: usize,
}

/// Figures, or their logarithms.
#[derive(Copy, Clone, PartialEq, Debug)]
struct Scale {
    median: f64,
    mad: f64,
    /// The median variance of one member's figure.
    typical_variance: f64,
}

/// How far a member is from the others.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Deviation {
    /// Its figure in times the median; `None` where the median is 0.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of `ratio`.
    pub interval: Option<(f64, f64)>,
    /// The chance that one like the others is so far from them; 0 to 1.
    pub p: f64,
}

impl Spread {
    /// Of all members; `None` for less than three, or where a recording is too short to tell.
    pub fn new(members: &[Estimate]) -> Option<Self> {
        if members.len() < 3 {
            return None;
        }
        let plain = |one: &Estimate| Some((one.value, one.variance?));
        let figures: Option<Vec<(f64, f64)>> = members.iter().map(plain).collect();
        let figures = figures?;
        let plain = Scale::new(&figures);
        let grain = plain.typical_variance.sqrt().max(LEAST);
        let logarithms = figures.into_iter().map(|figure| logarithm(figure, grain));
        Some(Self {
            median: plain.median,
            mad: plain.mad,
            plain,
            logarithms: Scale::new(&logarithms.collect::<Vec<_>>()),
            grain,
            n: members.len(),
        })
    }

    /// How far one of the members is from the others; one whose recording is too short to tell is not.
    pub fn deviation(&self, member: &Estimate) -> Deviation {
        let n = self.n as f64;
        let own = member.variance.unwrap_or(f64::INFINITY);
        let figure = (member.value, own);
        let df = member.degrees_of_freedom.max(1.0);
        let p = (self.plain.p(figure, df, n)).max(self.logarithms.p(
            logarithm(figure, self.grain),
            df,
            n,
        ));
        let ratio = (self.median > 0.0).then(|| member.value / self.median);
        let interval = ratio.map(|ratio| {
            let of_median = ratio.powi(2) * OF_MEDIAN / n * (PER_MAD * self.mad).powi(2);
            let half = two_sided_quantile(0.05, df) * (own + of_median).sqrt() / self.median;
            ((ratio - half).max(0.0), ratio + half)
        });
        Deviation { ratio, interval, p }
    }
}

/// The logarithm of a figure, and its variance.
fn logarithm((value, variance): (f64, f64), grain: f64) -> (f64, f64) {
    let value = value + grain;
    (value.ln(), variance / (value * value))
}

impl Scale {
    /// Of figures with their variances.
    fn new(figures: &[(f64, f64)]) -> Self {
        let middle = median(figures.iter().map(|(value, _)| *value));
        Self {
            median: middle,
            mad: median(figures.iter().map(|(value, _)| (value - middle).abs())),
            typical_variance: median(figures.iter().map(|(_, variance)| *variance)),
        }
    }

    /// The chance that a figure like the others is so far from their median. `df`: what its variance rests on.
    fn p(&self, (value, own): (f64, f64), df: f64, n: f64) -> f64 {
        let difference = value - self.median;
        let of_members = (PER_MAD * self.mad).powi(2).max(self.typical_variance);
        let of_members = of_members * (1.0 + OF_MEDIAN / n);
        let of_own = (own - self.typical_variance).max(0.0);
        let variance = of_members + of_own;
        match (difference == 0.0, variance > 0.0) {
            (true, _) => 1.0,
            // Members that do not differ at all, and one that does.
            (false, false) => 0.0,
            (false, true) => {
                let parts = of_members.powi(2) / (FREEDOM_OF_MAD * n) + of_own.powi(2) / df;
                two_sided_p(difference / variance.sqrt(), variance.powi(2) / parts)
            }
        }
    }
}

/// The median; 0 of nothing.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64], variance: f64) -> (Spread, Vec<Estimate>) {
        let estimate = |&value: &f64| Estimate {
            value,
            variance: Some(variance),
            degrees_of_freedom: 12.0,
        };
        let members: Vec<Estimate> = values.iter().map(estimate).collect();
        (Spread::new(&members).unwrap(), members)
    }

    /// Check median and MAD, which one far value does not move, and that this value alone is unlikely.
    #[test]
    fn one_far_value() {
        let values: Vec<f64> = (0..59).map(|n| 1.0 + f64::from(n % 11) / 100.0).collect();
        let (spread, members) = spread(&[&values[..], &[2.0]].concat(), 1e-6);
        assert!((spread.median - 1.05).abs() < 1e-9, "{spread:?}");
        assert!((spread.mad - 0.03).abs() < 1e-9, "{spread:?}");
        let far = spread.deviation(&members[59]);
        assert!(far.p < 1e-9, "{far:?}");
        let (low, high) = far.interval.unwrap();
        assert!(
            1.85 < low && low < 2.0 / 1.05 && 2.0 / 1.05 < high && high < 1.96,
            "{far:?}"
        );
        assert!(members[..59].iter().all(|m| spread.deviation(m).p > 0.05));
    }

    /// Check that a distance which a figure's own error explains is none, and that one of members who do not
    /// differ, measured exactly, is certain.
    #[test]
    fn own_error() {
        let (near, members) = spread(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.5], 0.25);
        assert!(near.deviation(&members[5]).p > 0.3);
        let (exact, members) = spread(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.5], 0.0);
        assert_eq!(exact.deviation(&members[5]).p, 0.0);
        assert_eq!(exact.deviation(&members[0]).p, 1.0);
        let unsure = Estimate {
            variance: Some(4.0),
            ..members[5]
        };
        assert!(exact.deviation(&unsure).p > 0.5);
    }

    /// Check that of values which spread by factors one is far from the others only by a larger factor.
    #[test]
    fn skewed() {
        let factors = (0..60).map(|n| (0.05 * f64::from(n - 30)).exp());
        let values: Vec<f64> = factors.chain([8.0, 1000.0]).collect();
        let (spread, members) = spread(&values, 0.0);
        assert!(spread.deviation(&members[59]).p > 1e-2);
        assert!(spread.deviation(&members[60]).p > 1e-4);
        assert!(spread.deviation(&members[61]).p < 1e-4);
    }

    /// Check that nothing is said of few members, nor of recordings too short to tell.
    #[test]
    fn too_little() {
        let known = Estimate {
            value: 1.0,
            variance: Some(0.1),
            degrees_of_freedom: 12.0,
        };
        assert_eq!(Spread::new(&[known; 2]), None);
        let unknown = Estimate {
            variance: None,
            ..known
        };
        assert_eq!(Spread::new(&[known, known, unknown]), None);
    }
}
