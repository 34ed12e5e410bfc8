//! Work to nanoseconds of thread CPU time: batches of many cases by turns, and their medians.

use nix::time::{ClockId, clock_gettime};

use crate::run::Memory;
use msgr_crypto_ffi::CallError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// libcrypto failed.
    #[error("failed to run a measurement: {0}")]
    Call(#[from] CallError),
    /// The kernel has no CPU clock of the thread.
    #[error("failed to read the CPU clock of this thread: {0}")]
    Clock(#[from] nix::Error),
    /// What was measured makes no sense: another load, or a virtual machine that was moved.
    #[error(
        "{0} took no time or was measured wildly differently each time; measure again on a calmer machine"
    )]
    Unstable(String),
}

/// How long to measure.
#[derive(Copy, Clone, Debug)]
pub struct Effort {
    /// Samples of each case; the median is taken.
    pub rounds: usize,
    /// Nanoseconds of a sample.
    pub sample_ns: f64,
}

type Work<'a> = Box<dyn FnMut(u64, &mut Memory) -> Result<(), CallError> + 'a>;

/// Something that can be done any number of times.
pub(crate) struct Case<'a> {
    work: Work<'a>,
    n: u64,
    samples: Vec<f64>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(
        work: impl FnMut(u64, &mut Memory) -> Result<(), CallError> + 'a,
    ) -> Self {
        Self {
            work: Box::new(work),
            n: 1,
            samples: Vec::new(),
        }
    }
}

/// Nanoseconds of CPU time that this thread used.
pub(crate) fn cpu_now() -> Result<f64, MeasureError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Median nanoseconds of one repetition of each case.
///
/// Cases take turns, so that a change of the clock rate meets all alike, and each sample comes after
/// repetitions that are not counted, because the case before has filled the caches. The first case is
/// the reference: samples of a round are scaled by how much slower or faster it ran in that round.
pub(crate) fn measure(
    cases: &mut [Case<'_>],
    memory: &mut Memory,
    effort: Effort,
) -> Result<Vec<f64>, MeasureError> {
    let clock_ns = clock_cost()?;
    for case in cases.iter_mut() {
        case.n = repetitions(case, memory, effort.sample_ns)?;
    }
    for _ in 0..effort.rounds {
        for case in cases.iter_mut() {
            (case.work)((case.n / 16).clamp(1, 200), memory)?;
            let begin = cpu_now()?;
            (case.work)(case.n, memory)?;
            let ns = cpu_now()? - begin - clock_ns;
            case.samples.push(ns.max(0.0) / case.n as f64);
        }
    }
    let Some(reference) = cases.first() else {
        return Ok(Vec::new());
    };
    let reference = reference.samples.clone();
    let typical = median(&reference);
    if !(typical > 0.0) {
        return Err(MeasureError::Unstable("the reference".into()));
    }
    Ok(cases
        .iter()
        .map(|case| {
            let scaled: Vec<f64> = case
                .samples
                .iter()
                .zip(&reference)
                // A reference far off is a disturbance of its own, which says nothing of others.
                .map(|(sample, now)| match now / typical {
                    factor if (0.8..1.25).contains(&factor) => sample / factor,
                    _ => *sample,
                })
                .collect();
            median(&scaled)
        })
        .collect())
}

fn repetitions(
    case: &mut Case<'_>,
    memory: &mut Memory,
    sample_ns: f64,
) -> Result<u64, MeasureError> {
    let mut n = 1_u64;
    loop {
        let begin = cpu_now()?;
        (case.work)(n, memory)?;
        let ns = cpu_now()? - begin;
        if ns >= sample_ns / 4.0 || n >= 1 << 30 {
            let wanted = n as f64 * sample_ns / ns.max(1.0);
            return Ok((wanted as u64).clamp(1, 1 << 30));
        }
        n *= 4;
    }
}

/// Nanoseconds between two readings of the clock.
fn clock_cost() -> Result<f64, MeasureError> {
    let mut costs = Vec::with_capacity(31);
    for _ in 0..31 {
        let begin = cpu_now()?;
        costs.push(cpu_now()? - begin);
    }
    Ok(median(&costs))
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

    /// Check that each case is run in every round, and that a failure ends the measurement.
    #[test]
    fn rounds() {
        let mut memory = Memory::default();
        let effort = Effort {
            rounds: 3,
            sample_ns: 1000.0,
        };
        let spin = |n: u64, _: &mut Memory| {
            for i in 0..n {
                std::hint::black_box(i);
            }
            Ok(())
        };
        let mut cases = [Case::new(spin), Case::new(spin)];
        let medians = measure(&mut cases, &mut memory, effort).unwrap();
        assert_eq!(medians.len(), 2);
        assert!(cases.iter().all(|case| case.samples.len() == 3));
        let mut bad = [Case::new(|_, _| Err(CallError::TagMismatch))];
        let error = measure(&mut bad, &mut memory, effort).unwrap_err();
        assert!(matches!(error, MeasureError::Call(_)));
    }
}
