//! How many samples an estimate of a share rests on.

use wcprof_types::ThreadState;

use super::wcprof::Recording;

/// What a known split is tested on at least.
const ENOUGH: u64 = 10_000;
/// How often to record for that.
const MAX_ROUNDS: u32 = 20;
/// Wanted where some samples stand for much longer than others.
const ENOUGH_EFFECTIVE: u64 = 2500;
/// How often to record for those; the tolerance is wider with fewer.
const MAX_ROUNDS_EFFECTIVE: u32 = 5;

/// The samples of one or more recordings whose times are added up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Samples {
    n_rounds: u32,
    n: u64,
    sum: f64,
    sum_of_squares: f64,
}

impl Samples {
    /// Add the spans of a recording whose thread's name and state are such.
    pub(crate) fn add(
        &mut self,
        recording: &Recording,
        counts: impl Fn(&str, ThreadState) -> bool,
    ) {
        self.n_rounds += 1;
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

    /// Whether a known split wants one more recording. One is enough on a calm machine.
    #[track_caller]
    pub(crate) fn too_few(&self) -> bool {
        let too_few = self.n < ENOUGH;
        assert!(!too_few || self.n_rounds < MAX_ROUNDS, "too few: {self:?}");
        too_few || self.n_effective() < ENOUGH_EFFECTIVE && self.n_rounds < MAX_ROUNDS_EFFECTIVE
    }

    /// Samples of like weight that would be as exact as these of unlike weights: the squared sum of the
    /// weights by the sum of their squares (L. Kish, Survey Sampling, 1965). Where a machine stops for a
    /// second, the sample after it stands for a hundred ticks and is one sample still.
    pub(crate) fn n_effective(&self) -> u64 {
        (self.sum * self.sum / self.sum_of_squares.max(1.0)) as u64
    }
}
