//! Work to nanoseconds: alternating samples of many cases, without those that were disturbed, and
//! their medians.

mod clock;
mod error;
mod reference;
mod statistics;

use std::time::{Duration, Instant};

use msgr_crypto_ffi::CallError;

use self::clock::Stopwatch;
use self::statistics::{MIN_SAMPLES, Sample, scaled, shuffle, typical, undisturbed};
use crate::run::Runner;

pub(crate) use clock::thread_cpu_ns;
pub use error::MeasureError;
pub(crate) use reference::Reference;
pub(crate) use statistics::median;

/// How long to measure.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Undisturbed samples of each case that are wanted; the median is taken.
    pub rounds: usize,
    /// Nanoseconds of a sample.
    pub sample_ns: f64,
    /// Wall-clock time for all cases that are measured together. When it is used up, each case keeps the
    /// samples that it has, so that other work that never ends does not make a measurement endless.
    pub max_time: Duration,
}

/// While samples are disturbed, rounds are repeated up to this multiple of the wanted ones.
const MAX_ROUNDS: usize = 3;
/// Work that takes longer than two samples gets this multiple of the wanted rounds, unless it settles
/// before.
const LONG_WORK_ROUNDS: usize = 3;
/// This number of undisturbed samples can be enough ...
const MIN_SETTLED: usize = 5;
/// ... if the fastest [`MIN_SAMPLES`] of them differ by no more than this share: more samples would
/// find the same minimum again.
const SETTLED_WITHIN: f64 = 0.01;

/// Work that can be repeated, and its samples.
pub(crate) struct Case<'a> {
    /// Does the work that number of times.
    work: Box<dyn FnMut(u64) -> Result<(), CallError> + 'a>,
    /// Repetitions in a sample, and before it.
    n: u64,
    n_warm_up: u64,
    /// Samples that are wanted.
    rounds: usize,
    samples: Vec<Sample>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(work: impl FnMut(u64) -> Result<(), CallError> + 'a) -> Self {
        Self {
            work: Box::new(work),
            n: 1,
            n_warm_up: 1,
            rounds: 1,
            samples: Vec::new(),
        }
    }

    pub(crate) fn of_runner(mut runner: Runner<'a>) -> Self {
        Self::new(move |n| runner.run(n))
    }

    /// Finds how often the work fits into a sample.
    fn prepare(&mut self, effort: Effort) -> Result<(), MeasureError> {
        self.samples.clear();
        let mut n = 1_u64;
        let least = loop {
            // A sample that is much too short would measure the clocks.
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                let begin = Instant::now();
                (self.work)(n)?;
                least = least.min(begin.elapsed().as_nanos() as f64);
            }
            if least >= effort.sample_ns / 4.0 || n >= 1 << 30 {
                break least;
            }
            n *= 4;
        };
        let wanted = n as f64 * effort.sample_ns / least.max(1.0);
        self.n = (wanted as u64).clamp(1, 1 << 30);
        self.n_warm_up = (self.n / 16).clamp(1, 200);
        let is_long = least / n as f64 > 2.0 * effort.sample_ns;
        self.rounds = effort.rounds * if is_long { LONG_WORK_ROUNDS } else { 1 };
        Ok(())
    }

    /// Whether it needs another sample in this round, with `limit` for the reference.
    fn needs_sample(&self, round: usize, limit: f64) -> bool {
        let mut ns: Vec<f64> = undisturbed(&self.samples, limit).collect();
        let has_enough = ns.len() >= self.rounds
            || (round >= self.rounds && ns.len() > MIN_SAMPLES)
            || round >= self.rounds * MAX_ROUNDS;
        ns.sort_by(f64::total_cmp);
        let is_settled =
            ns.len() >= MIN_SETTLED && ns[MIN_SAMPLES - 1] - ns[0] <= SETTLED_WITHIN * ns[0];
        !has_enough && !is_settled
    }

    /// Its nanoseconds, and whether they are less exact: it had too few undisturbed samples, or round
    /// `cut_in` was the last for lack of time and it needed more.
    fn result(&self, cut_in: Option<usize>, reference: &Reference<'_>) -> (f64, bool) {
        let limit = reference.limit();
        let ns: Vec<f64> = undisturbed(&self.samples, limit).collect();
        match ns.len() < MIN_SAMPLES {
            false => {
                let is_cut = cut_in.is_some_and(|round| self.needs_sample(round, limit));
                (typical(&ns), is_cut)
            }
            true => (scaled(&self.samples, reference.best_ns), true),
        }
    }

    fn take_sample(&mut self, reference: &mut Reference<'_>) -> Result<(), MeasureError> {
        let before = reference.wait_until_calm()?;
        (self.work)(self.n_warm_up)?;
        let begin = Stopwatch::start()?;
        (self.work)(self.n)?;
        let (ns, ran_throughout) = begin.stop()?;
        let after = reference.measure()?;
        self.samples.push(Sample {
            ns: (ns - reference.clock_ns).max(0.0) / self.n as f64,
            reference_ns: match ran_throughout {
                true => before.max(after),
                false => f64::INFINITY,
            },
        });
        Ok(())
    }
}

/// Nanoseconds of one repetition of each case: the median of the faster half of its samples.
///
/// Cases take turns, in an order that changes, so that slow changes affect all alike. Each sample comes
/// after repetitions that are not counted, because the case before has filled the caches. Samples during
/// which the reference says that the core was slowed do not count; more are taken then. Also whether a
/// figure is less exact: the case had too few undisturbed samples (its figure is scaled then), or the time
/// ended before it had those that it needs.
pub(crate) fn measure(
    cases: &mut [Case<'_>],
    reference: &mut Reference<'_>,
    effort: Effort,
) -> Result<Vec<(f64, bool)>, MeasureError> {
    for case in cases.iter_mut() {
        case.prepare(effort)?;
    }
    let most = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
    let begin = Instant::now();
    let mut cut_in = None;
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for round in 0..most * MAX_ROUNDS {
        if round >= MIN_SAMPLES && begin.elapsed() > effort.max_time {
            cut_in = Some(round);
            break;
        }
        let mut is_complete = true;
        shuffle(&mut order, round);
        for index in &order {
            let case = &mut cases[*index];
            if case.needs_sample(round, reference.limit()) {
                is_complete = false;
                case.take_sample(reference)?;
            }
        }
        if is_complete {
            break;
        }
    }
    let measured = cases.iter().map(|case| case.result(cut_in, reference));
    Ok(measured.collect())
}

#[cfg(test)]
mod tests {
    use msgr_crypto_ffi::Library;

    use super::*;

    /// Check that each case is run in every round, and that a failure ends the measurement.
    #[test]
    fn rounds() {
        let library = Library::system().unwrap();
        let mut reference = Reference::new(&library, Duration::ZERO).unwrap();
        assert!(reference.best_ns > 0.0);
        let effort = Effort {
            rounds: 3,
            sample_ns: 1000.0,
            max_time: Duration::MAX,
        };
        let spin = |n: u64| {
            for i in 0..n {
                std::hint::black_box(i);
            }
            Ok(())
        };
        let mut cases = [Case::new(spin), Case::new(spin)];
        let measured = measure(&mut cases, &mut reference, effort).unwrap();
        assert_eq!(measured.len(), 2);
        assert!(
            cases
                .iter()
                .all(|case| (3..=9).contains(&case.samples.len()))
        );
        // No time left: the fewest samples are taken, no more, and the figures say so.
        let effort = Effort {
            rounds: 20,
            max_time: Duration::ZERO,
            ..effort
        };
        let measured = measure(&mut cases, &mut reference, effort).unwrap();
        assert_eq!(measured.len(), 2);
        assert!(cases.iter().all(|case| case.samples.len() == MIN_SAMPLES));
        assert!(measured.iter().all(|(_, is_less_exact)| *is_less_exact));
        let mut bad = [Case::new(|_| Err(CallError::TagMismatch))];
        let error = measure(&mut bad, &mut reference, effort).unwrap_err();
        assert!(matches!(error, MeasureError::Call(_)));
    }
}
