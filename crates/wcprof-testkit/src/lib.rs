//! What live tests share: building and running targets, running wcprof, reading its output, and whether
//! the machine stood still meanwhile.
#![forbid(unsafe_code)]

mod build;
mod docs;
mod engines;
mod folded;
mod load;
mod machine;
mod proc;
mod remote;
mod samples;
mod skip;
mod wcprof;

pub use build::{Variant, build_tiny32, fixture, output_folder};
pub use docs::{DocCommand, doc_commands};
pub use engines::usable;
pub use folded::{Folded, is_function};
pub use load::alone;
pub use machine::Verdict;
pub use proc::{
    CpuLog, StopWatch, children, run_delay_ns, voluntary_switches, wait_for_epoll,
    wait_for_run_time, wait_for_thread,
};
pub use remote::{Mark, RemoteProcess, copy_program};
pub use samples::{Samples, Split};
pub use skip::{has_capability, skip};
pub use wcprof::{
    Attach, Engine, Recording, assert_fails, assert_weights, interrupt, printed, program,
    stood_still, text, wait_for_trace, wait_for_write, wcprof,
};

/// Assert that a share is what it should be: within two points, or four standard deviations of a
/// share counted on `n_samples` if that is more.
#[track_caller]
pub fn assert_share(what: &str, got: f64, truth: f64, n_samples: u64) {
    assert_within(what, got, truth, tolerance(truth, n_samples));
}

/// Assert that a share is as near to what it should be as that.
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
