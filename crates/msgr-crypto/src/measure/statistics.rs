//! Samples of a case to one figure.

/// Fewer undisturbed samples than this make no median.
pub(super) const MIN_SAMPLES: usize = 3;

/// Nanoseconds of a repetition, and the slower one of the reference's times before and after; infinite
/// when the thread did not run all the time.
#[derive(Copy, Clone, Debug)]
pub(super) struct Sample {
    pub(super) ns: f64,
    pub(super) reference_ns: f64,
}

/// Nanoseconds of the samples that nothing disturbed.
pub(super) fn undisturbed(samples: &[Sample], limit: f64) -> impl Iterator<Item = f64> {
    let calm = samples.iter().filter(move |s| s.reference_ns <= limit);
    calm.map(|sample| sample.ns)
}

/// Another order in each round: what a case leaves behind in prefetchers and predictors must not always
/// affect the same one.
pub(super) fn shuffle(order: &mut [usize], round: usize) {
    // Knuth's multiplier; the upper bits are the good ones.
    let mut state = round as u64;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// For a case without undisturbed samples: each sample times the reference at its best by the reference
/// beside it. What shares a core slows similar work alike.
pub(super) fn scaled(samples: &[Sample], best_ns: f64) -> f64 {
    let ran = samples.iter().filter(|s| s.reference_ns.is_finite());
    let scaled: Vec<f64> = ran.map(|s| s.ns * best_ns / s.reference_ns).collect();
    match scaled.is_empty() {
        false => typical(&scaled),
        true => samples.iter().map(|s| s.ns).fold(f64::INFINITY, f64::min),
    }
}

/// The median of the faster half: what disturbs only ever takes time, and a short disturbance between
/// two runs of the reference is not seen.
pub(super) fn typical(samples: &[f64]) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples.truncate(samples.len().div_ceil(2).max(MIN_SAMPLES));
    median(&samples)
}

/// The middle value, or the mean of both middle ones; 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle.wrapping_sub(1)), values.get(middle)) {
        (Some(low), Some(high)) if values.len().is_multiple_of(2) => (low + high) / 2.0,
        (_, Some(value)) => *value,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check medians of odd and even numbers of values, and of none.
    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[]), 0.0);
    }

    /// Check that the slower half of the samples does not count.
    #[test]
    fn faster_half() {
        assert_eq!(typical(&[9.0, 1.0, 2.0, 3.0, 8.0, 7.0]), 2.0);
        assert_eq!(typical(&[5.0, 4.0, 90.0]), 5.0);
    }

    /// Check that a slowed core is taken out of samples that were never left alone.
    #[test]
    fn slowed() {
        let sample = |ns, reference_ns| Sample { ns, reference_ns };
        let of = |samples: &[Sample]| scaled(samples, 100.0);
        let all = [
            sample(300.0, 150.0),
            sample(260.0, 130.0),
            sample(500.0, 250.0),
        ];
        assert_eq!(of(&all), 200.0);
        assert_eq!(of(&[sample(1.0, f64::INFINITY), sample(40.0, 200.0)]), 20.0);
        assert_eq!(of(&[sample(7.0, f64::INFINITY)]), 7.0);
    }

    /// Check that every round has all cases, and an order of its own.
    #[test]
    fn orders() {
        let mut order: Vec<usize> = (0..50).collect();
        let mut before = order.clone();
        for round in 0..5 {
            shuffle(&mut order, round);
            assert_ne!(order, before);
            before.clone_from(&order);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..50));
        }
    }
}
