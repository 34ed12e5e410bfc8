//! The shares of two functions in the time of some threads, and the number of samples behind them.

use wcprof_types::ThreadState;

use crate::machine::Verdict;
use crate::share::{assert_within, tolerance};
use crate::wcprof::Recording;

/// Least number of samples for an exact split.
const ENOUGH: u64 = 10_000;
/// Most recordings to reach that number.
const MAX_ROUNDS: u32 = 20;

/// Samples of some threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Samples {
    n: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Samples {
    /// Adds the spans of a recording for which `counts` (name of the thread, state) is true.
    pub fn add(&mut self, recording: &Recording, counts: impl Fn(&str, ThreadState) -> bool) {
        let trace = recording.trace().0;
        for span in &trace.spans {
            let thread = &trace.tables.threads[span.thread.0 as usize];
            if counts(thread.name(), span.state) {
                let weight = span.weight as f64;
                self.n += u64::from(span.n_samples);
                self.sum += weight;
                self.sum_of_squares += weight * weight / f64::from(span.n_samples.max(1));
            }
        }
    }

    /// Samples of equal weight that would be as exact as these of unequal weights: the squared sum of the
    /// weights by the sum of their squares (L. Kish, Survey Sampling, 1965). Where a machine stops for a
    /// second, the sample after it stands for a hundred ticks and is one sample still.
    pub fn n_effective(&self) -> u64 {
        (self.sum * self.sum / self.sum_of_squares.max(1.0)) as u64
    }
}

/// A split of time between two functions, as recorded and in truth.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    n_rounds: u32,
    got: [u64; 2],
    truth: [u64; 2],
    verdict: Verdict,
    /// The samples that it was measured on.
    pub samples: Samples,
}

impl Split {
    /// Adds times of one recording, of both functions; units cancel out.
    pub fn add(&mut self, recording: &Recording, got: [u64; 2], truth: [u64; 2]) {
        self.n_rounds += 1;
        self.verdict = recording.verdict;
        for i in 0..2 {
            self.got[i] += got[i];
            self.truth[i] += truth[i];
        }
    }

    /// Whether an exact split needs one more recording.
    #[track_caller]
    pub fn too_few(&self) -> bool {
        let too_few = self.samples.n_effective() < ENOUGH;
        assert!(!too_few || self.n_rounds < MAX_ROUNDS, "too few: {self:?}");
        too_few
    }

    /// The machine's verdict on the last recording and its samples.
    pub fn verdict(&self) -> Verdict {
        self.verdict.with_samples(self.samples.n_effective())
    }

    /// Asserts the first function's share with the bound of its samples, or two points.
    #[track_caller]
    pub fn assert_exact(&self, what: &str) {
        self.assert_near(what, tolerance);
    }

    /// Asserts it with a bound for a machine that does other work or stood still for a part of the time.
    #[track_caller]
    pub fn assert_wide(&self, what: &str) {
        self.assert_near(what, |truth, n| self.verdict.tolerance(truth, n));
    }

    #[track_caller]
    fn assert_near(&self, what: &str, bound: impl Fn(f64, u64) -> f64) {
        let share = |times: [u64; 2]| times[0] as f64 / (times[0] + times[1]).max(1) as f64;
        let truth = share(self.truth);
        let bound = bound(truth, self.samples.n_effective());
        assert_within(what, share(self.got), truth, bound);
    }
}
