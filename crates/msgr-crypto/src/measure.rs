//! Work to nanoseconds of thread CPU time: batches of many cases by turns, and their medians.

use nix::time::{ClockId, clock_gettime};

use msgr_crypto_ffi::{CallError, Context, Direction, Library};

use crate::run::Memory;

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
    /// Undisturbed samples of each case that are wanted; the median is taken.
    pub rounds: usize,
    /// Nanoseconds of a sample.
    pub sample_ns: f64,
}

/// At most so many times the wanted rounds are made while samples are disturbed.
const MOST_ROUNDS: usize = 3;
/// A sample is disturbed when the reference beside it took so much longer than it can.
const DISTURBED: f64 = 1.04;
/// Fewer undisturbed samples than this make no median.
const FEWEST: usize = 3;

type Work<'a> = Box<dyn FnMut(u64, &mut Memory) -> Result<(), CallError> + 'a>;

/// Something that can be done any number of times.
pub(crate) struct Case<'a> {
    work: Work<'a>,
    n: u64,
    samples: Vec<Sample>,
}

/// Nanoseconds of a repetition, and the slower one of the reference's times before and after.
#[derive(Copy, Clone, Debug)]
struct Sample {
    ns: f64,
    reference_ns: f64,
}

impl<'a> Case<'a> {
    pub(crate) fn new(work: impl FnMut(u64, &mut Memory) -> Result<(), CallError> + 'a) -> Self {
        Self {
            work: Box::new(work),
            n: 1,
            samples: Vec::new(),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Nanoseconds of one repetition of each case.
    pub(crate) ns: Vec<f64>,
    /// Cases without enough undisturbed samples; their figures are scaled by the reference.
    pub(crate) n_disturbed: usize,
}

/// Nanoseconds of CPU time that this thread used.
pub(crate) fn cpu_now() -> Result<f64, MeasureError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// A short piece of work of constant length that tells how fast the core is at this moment: its clock
/// changes, and what runs on the other thread of a core takes from it.
pub(crate) struct Reference<'lib> {
    context: Context<'lib>,
    data: Vec<u8>,
    clock_ns: f64,
    /// The best it can do, nanoseconds.
    pub(crate) best_ns: f64,
}

impl<'lib> Reference<'lib> {
    const CALLS: usize = 12;

    /// Finds the best over some milliseconds; `known_ns` is what it was at another time.
    pub(crate) fn new(library: &'lib Library, known_ns: Option<f64>) -> Result<Self, MeasureError> {
        let mut reference = Self {
            context: library.context(Direction::Encrypt, &[3; 16])?,
            data: vec![0; 1024],
            clock_ns: clock_cost()?,
            best_ns: 0.0,
        };
        let mut times = Vec::new();
        for _ in 0..300 {
            times.push(reference.take()?);
        }
        times.sort_by(f64::total_cmp);
        let best = times[times.len() / 10];
        reference.best_ns = known_ns.map_or(best, |known| known.min(best * 1.5));
        match best > 0.0 {
            true => Ok(reference),
            false => Err(MeasureError::Unstable("the reference".into())),
        }
    }

    fn take(&mut self) -> Result<f64, MeasureError> {
        let begin = cpu_now()?;
        self.context.restart(&[4; 12])?;
        for _ in 0..Self::CALLS {
            self.context.update_in_place(&mut self.data)?;
        }
        Ok(cpu_now()? - begin - self.clock_ns)
    }
}

/// Median nanoseconds of one repetition of each case.
///
/// Cases take turns, so that slow changes meet all alike, and each sample comes after repetitions that
/// are not counted, because the case before has filled the caches. Samples during which the core was
/// slower than it can be, as the reference before and after tells, do not count; more are taken then.
pub(crate) fn measure(
    cases: &mut [Case<'_>],
    memory: &mut Memory,
    reference: &mut Reference<'_>,
    effort: Effort,
) -> Result<Measured, MeasureError> {
    for case in cases.iter_mut() {
        case.n = repetitions(case, memory, effort.sample_ns)?;
    }
    let limit = reference.best_ns * DISTURBED;
    let mut before = reference.take()?;
    for round in 0..effort.rounds * MOST_ROUNDS {
        let mut n_wanting = 0;
        for case in cases.iter_mut() {
            let n_good = case
                .samples
                .iter()
                .filter(|s| s.reference_ns <= limit)
                .count();
            if round >= effort.rounds && n_good >= effort.rounds.min(FEWEST + 2) {
                continue;
            }
            n_wanting += 1;
            (case.work)((case.n / 16).clamp(1, 200), memory)?;
            let begin = cpu_now()?;
            (case.work)(case.n, memory)?;
            let ns = (cpu_now()? - begin - reference.clock_ns).max(0.0) / case.n as f64;
            let after = reference.take()?;
            case.samples.push(Sample {
                ns,
                reference_ns: before.max(after),
            });
            before = after;
        }
        if n_wanting == 0 {
            break;
        }
    }
    let mut measured = Measured {
        ns: Vec::with_capacity(cases.len()),
        n_disturbed: 0,
    };
    for case in cases {
        let good: Vec<f64> = case
            .samples
            .iter()
            .filter(|sample| sample.reference_ns <= limit)
            .map(|sample| sample.ns)
            .collect();
        measured.ns.push(match good.len() {
            FEWEST.. => median(&good),
            _ => {
                measured.n_disturbed += 1;
                let scaled: Vec<f64> = case
                    .samples
                    .iter()
                    .map(|s| s.ns * (reference.best_ns / s.reference_ns).min(1.0))
                    .collect();
                median(&scaled)
            }
        });
    }
    Ok(measured)
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
        let library = Library::system().unwrap();
        let mut reference = Reference::new(&library, None).unwrap();
        assert!(reference.best_ns > 0.0);
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
        let measured = measure(&mut cases, &mut memory, &mut reference, effort).unwrap();
        assert_eq!(measured.ns.len(), 2);
        assert!(
            cases
                .iter()
                .all(|case| (3..=9).contains(&case.samples.len()))
        );
        let mut bad = [Case::new(|_, _| Err(CallError::TagMismatch))];
        let error = measure(&mut bad, &mut memory, &mut reference, effort).unwrap_err();
        assert!(matches!(error, MeasureError::Call(_)));
    }
}
