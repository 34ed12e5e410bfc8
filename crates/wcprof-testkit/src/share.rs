//! A measured share against the true one, with a bound that follows from the number of samples.

/// Assert that a share is what it should be: within two points, or four standard deviations of a
/// share counted on `n_samples` if that is more.
#[track_caller]
pub fn assert_share(what: &str, got: f64, truth: f64, n_samples: u64) {
    assert_within(what, got, truth, tolerance(truth, n_samples));
}

/// Assert that a share differs from the true one by `tolerance` at most.
#[track_caller]
pub fn assert_within(what: &str, got: f64, truth: f64, tolerance: f64) {
    assert!(
        (got - truth).abs() <= tolerance,
        "{what}: share {got:.4}, truth {truth:.4}, tolerance {tolerance:.4}"
    );
}

/// The larger of two points and four standard deviations.
pub fn tolerance(truth: f64, n_samples: u64) -> f64 {
    let sigma = (truth * (1.0 - truth) / n_samples.max(1) as f64).sqrt();
    (4.0 * sigma).max(0.02)
}
