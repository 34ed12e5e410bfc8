//! Work to nanoseconds: samples of many cases by turns, those that something disturbed left out, and
//! their medians.

use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use msgr_crypto_ffi::{CallError, Context, Direction, Library};

use crate::run::{Memory, Runner};

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
    /// CPU time of all cases that are measured together, after which each has what samples it has: other
    /// work that never ends must not make a measurement endless.
    pub most_cpu: Duration,
}

/// At most so many times the wanted rounds are made while samples are disturbed.
const MOST_ROUNDS: usize = 3;
/// A sample is disturbed when the reference beside it took so much longer than it can.
const DISTURBED: f64 = 1.04;
/// Fewer undisturbed samples than this make no median.
const FEWEST: usize = 3;
/// Where data is distant, others on this host disturb, too, and the reference does not tell: so many
/// times the samples are taken, each by as much shorter, and of these the fastest count.
const DISTANT_ROUNDS: usize = 6;
const DISTANT_SHORTER: f64 = 3.0;
/// Single repetitions that take longer than two samples are taken so many times as often, unless they
/// settle before.
const LONG_ROUNDS: usize = 3;

/// So many undisturbed samples can be enough, of hot and of distant data (of long ones as of hot) ...
const SETTLED_FROM: (usize, usize) = (5, 9);
/// ... if the fastest of them, [`FEWEST`], differ by no more than these shares: the floor is found, and
/// more samples would find it again.
const SETTLED_WITHIN: (f64, f64) = (0.01, 0.02);

/// Something that can be done any number of times.
trait Work {
    /// Does it `n` times.
    fn run(&mut self, n: u64, memory: &mut Memory) -> Result<(), CallError>;
    /// Before a stretch of `n` times.
    fn approach(&mut self, _n: u64, _: &mut Memory) {}
    /// After a stretch.
    fn leave(&mut self, _: &mut Memory) {}
    /// Whether its data is brought far away before each stretch.
    fn is_distant(&self) -> bool {
        false
    }
}

/// Work whose data is hot.
struct Closure<F>(F);

impl<F: FnMut(u64, &mut Memory) -> Result<(), CallError>> Work for Closure<F> {
    fn run(&mut self, n: u64, memory: &mut Memory) -> Result<(), CallError> {
        self.0(n, memory)
    }
}

impl Work for Runner<'_> {
    fn run(&mut self, n: u64, memory: &mut Memory) -> Result<(), CallError> {
        Runner::run(self, n, memory)
    }

    fn approach(&mut self, n: u64, memory: &mut Memory) {
        Runner::approach(self, n, memory);
    }

    fn leave(&mut self, memory: &mut Memory) {
        Runner::leave(self, memory);
    }

    fn is_distant(&self) -> bool {
        Runner::is_distant(self)
    }
}

/// Work and its samples.
pub(crate) struct Case<'a> {
    work: Box<dyn Work + 'a>,
    /// Repetitions in a sample, and before it.
    n: u64,
    n_uncounted: u64,
    /// Samples that are wanted.
    rounds: usize,
    /// Fewest samples that can be enough.
    settled_from: usize,
    samples: Vec<Sample>,
}

/// Nanoseconds of a repetition, and the slower one of the reference's times before and after; infinite
/// when the thread did not run all the time.
#[derive(Copy, Clone, Debug)]
struct Sample {
    ns: f64,
    reference_ns: f64,
}

impl<'a> Case<'a> {
    pub(crate) fn new(work: impl FnMut(u64, &mut Memory) -> Result<(), CallError> + 'a) -> Self {
        Self::of(Closure(work))
    }

    /// Frames, in memory that cases share.
    pub(crate) fn of_runner(runner: Runner<'a>) -> Self {
        Self::of(runner)
    }

    fn of(work: impl Work + 'a) -> Self {
        Self {
            work: Box::new(work),
            n: 1,
            n_uncounted: 1,
            rounds: 1,
            settled_from: SETTLED_FROM.0,
            samples: Vec::new(),
        }
    }
}

impl Case<'_> {
    /// Finds how often the work fits into a sample.
    fn prepare(&mut self, memory: &mut Memory, effort: Effort) -> Result<(), MeasureError> {
        let is_distant = self.work.is_distant();
        let (sample_ns, share, rounds) = match is_distant {
            true => (
                effort.sample_ns / DISTANT_SHORTER,
                1,
                effort.rounds * DISTANT_ROUNDS,
            ),
            false => (effort.sample_ns, 16, effort.rounds),
        };
        let (n, once_ns) = self.repetitions(memory, sample_ns)?;
        self.n = n;
        self.n_uncounted = (n / share).clamp(1, 200);
        // A long one is a mean of many things already, if nothing disturbs it.
        let is_long = once_ns > 2.0 * effort.sample_ns;
        self.rounds = match is_long {
            true => effort.rounds * LONG_ROUNDS,
            false => rounds,
        };
        self.settled_from = match is_distant && !is_long {
            true => SETTLED_FROM.1,
            false => SETTLED_FROM.0,
        };
        Ok(())
    }

    /// How often the work fits into a sample, and what it takes once.
    fn repetitions(
        &mut self,
        memory: &mut Memory,
        sample_ns: f64,
    ) -> Result<(u64, f64), MeasureError> {
        let mut n = 1_u64;
        loop {
            // A sample that is much too short would measure the clocks.
            let mut least = f64::INFINITY;
            for _ in 0..3 {
                self.work.approach(n, memory);
                let begin = Instant::now();
                self.work.run(n, memory)?;
                least = least.min(begin.elapsed().as_nanos() as f64);
                self.work.leave(memory);
            }
            if least >= sample_ns / 4.0 || n >= 1 << 30 {
                let wanted = n as f64 * sample_ns / least.max(1.0);
                return Ok(((wanted as u64).clamp(1, 1 << 30), least / n as f64));
            }
            n *= 4;
        }
    }

    /// Whether further samples are of no use, with `limit` for the reference.
    fn is_settled(&self, limit: f64) -> bool {
        let within = match self.work.is_distant() {
            true => SETTLED_WITHIN.1,
            false => SETTLED_WITHIN.0,
        };
        let mut good: Vec<f64> = good(&self.samples, limit).collect();
        if good.len() < self.settled_from {
            return false;
        }
        good.sort_by(f64::total_cmp);
        match (good.first(), good.get(FEWEST - 1)) {
            (Some(least), Some(most)) => most - least <= within * least,
            _ => false,
        }
    }

    /// Of how many samples the fastest one counts.
    fn fastest(&self) -> usize {
        match self.work.is_distant() {
            true => 6,
            false => 2,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Nanoseconds of one repetition of each case.
    pub(crate) ns: Vec<f64>,
    /// Of each case, whether it had too few undisturbed samples; the figure is scaled then.
    pub(crate) is_disturbed: Vec<bool>,
}

/// Nanoseconds of CPU time that this thread used.
pub(crate) fn cpu_now() -> Result<f64, MeasureError> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Both clocks. A stretch whose CPU time is not its wall-clock time was preempted, or the host took
/// the CPU away. CPU time alone can not be used: in a virtual machine it can be too short, since what
/// the host took is subtracted late, from another stretch.
#[derive(Copy, Clone, Debug)]
struct Clocks {
    cpu_ns: f64,
    wall: Instant,
}

impl Clocks {
    fn now() -> Result<Self, MeasureError> {
        let wall = Instant::now();
        let cpu_ns = cpu_now()?;
        Ok(Self { cpu_ns, wall })
    }

    fn elapsed(self) -> Result<Elapsed, MeasureError> {
        let cpu_ns = cpu_now()? - self.cpu_ns;
        let wall_ns = self.wall.elapsed().as_nanos() as f64;
        Ok(Elapsed { cpu_ns, wall_ns })
    }
}

#[derive(Copy, Clone, Debug)]
struct Elapsed {
    cpu_ns: f64,
    wall_ns: f64,
}

impl Elapsed {
    /// Whether the thread ran all the time, and the CPU time is right.
    fn is_whole(self) -> bool {
        (self.wall_ns - self.cpu_ns).abs() <= 0.01 * self.wall_ns + 1000.0
    }
}

/// A short piece of work of constant length that tells how fast the core is at this moment: its clock
/// changes, and what runs on the other thread of a core takes from it.
pub(crate) struct Reference<'lib> {
    context: Context<'lib>,
    data: Vec<u8>,
    clock_ns: f64,
    /// The best it can do, nanoseconds; three times in a row, so that no glitch of a clock counts.
    pub(crate) best_ns: f64,
    last: [f64; 2],
    patience: Duration,
}

impl<'lib> Reference<'lib> {
    const CALLS: usize = 12;

    /// Finds the best over a third of a second; `patience` is how long to sleep at most, in all
    /// measurements, until other work is done.
    pub(crate) fn new(library: &'lib Library, patience: Duration) -> Result<Self, MeasureError> {
        let mut reference = Self {
            context: library.context(Direction::Encrypt, &[3; 16])?,
            data: vec![0; 1024],
            clock_ns: clock_cost()?,
            best_ns: f64::INFINITY,
            last: [f64::INFINITY; 2],
            patience,
        };
        for _ in 0..60 {
            for _ in 0..6 {
                reference.take()?;
            }
            if !patience.is_zero() {
                thread::sleep(Duration::from_millis(5));
            }
        }
        match reference.best_ns > 0.0 {
            true => Ok(reference),
            false => Err(MeasureError::Unstable("the reference".into())),
        }
    }

    fn take(&mut self) -> Result<f64, MeasureError> {
        let begin = Instant::now();
        self.context.restart(&[4; 12])?;
        for _ in 0..Self::CALLS {
            self.context.update_in_place(&mut self.data)?;
        }
        let ns = begin.elapsed().as_nanos() as f64;
        self.best_ns = self.best_ns.min(self.last[0].max(self.last[1]).max(ns));
        self.last = [self.last[1], ns];
        Ok(ns)
    }

    /// The better one of two, the first of which brings what it needs back to the caches: distant data
    /// has pushed that out.
    fn look(&mut self) -> Result<f64, MeasureError> {
        Ok(self.take()?.min(self.take()?))
    }

    fn limit(&self) -> f64 {
        self.best_ns * DISTURBED
    }

    /// Waits until the core is as fast as it can be, or patience ends.
    fn calm(&mut self) -> Result<f64, MeasureError> {
        const NAP: Duration = Duration::from_millis(1);
        loop {
            let ns = self.look()?;
            if ns <= self.limit() || self.patience.is_zero() {
                return Ok(ns);
            }
            thread::sleep(NAP);
            self.patience = self.patience.saturating_sub(NAP);
        }
    }
}

/// Nanoseconds of one repetition of each case: the median of the faster half of its samples.
///
/// Cases take turns, in an order that changes, so that slow changes meet all alike, and each sample comes after repetitions that
/// are not counted, because the case before has filled the caches. Samples during which the core was
/// slower than it can be, as the reference before and after tells, do not count; more are taken then.
pub(crate) fn measure(
    cases: &mut [Case<'_>],
    memory: &mut Memory,
    reference: &mut Reference<'_>,
    effort: Effort,
) -> Result<Measured, MeasureError> {
    if cases.iter().any(|case| case.work.is_distant()) {
        // Runners flush what they touch, not what was there before them.
        memory.flush_all();
    }
    for case in cases.iter_mut() {
        case.samples.clear();
        case.prepare(memory, effort)?;
    }
    let most = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
    let enough_ns = cpu_now()? + effort.most_cpu.as_nanos() as f64;
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for round in 0..most * MOST_ROUNDS {
        if round >= FEWEST && cpu_now()? > enough_ns {
            break;
        }
        let mut n_wanting = 0;
        shuffle(&mut order, round);
        for index in &order {
            let Some(case) = cases.get_mut(*index) else {
                continue;
            };
            let limit = reference.limit();
            let n_good = good(&case.samples, limit).count();
            if n_good >= case.rounds
                || case.is_settled(limit)
                || (round >= case.rounds && n_good > FEWEST)
                || round >= case.rounds * MOST_ROUNDS
            {
                continue;
            }
            n_wanting += 1;
            let before = reference.calm()?;
            case.work.approach(case.n_uncounted + case.n, memory);
            case.work.run(case.n_uncounted, memory)?;
            let begin = Clocks::now()?;
            case.work.run(case.n, memory)?;
            let elapsed = begin.elapsed()?;
            let after = reference.look()?;
            case.work.leave(memory);
            let each = |ns: f64| (ns - reference.clock_ns).max(0.0) / case.n as f64;
            case.samples.push(Sample {
                ns: each(elapsed.wall_ns),
                reference_ns: match elapsed.is_whole() {
                    true => before.max(after),
                    false => f64::INFINITY,
                },
            });
        }
        if n_wanting == 0 {
            break;
        }
    }
    let limit = reference.limit();
    let mut measured = Measured {
        ns: Vec::with_capacity(cases.len()),
        is_disturbed: Vec::with_capacity(cases.len()),
    };
    for case in cases {
        let good: Vec<f64> = good(&case.samples, limit).collect();
        measured.is_disturbed.push(good.len() < FEWEST);
        measured.ns.push(match good.len() {
            FEWEST.. => typical(&good, case.fastest()),
            _ if case.work.is_distant() => {
                // The core and memory are not slowed alike.
                let all: Vec<f64> = case.samples.iter().map(|sample| sample.ns).collect();
                typical(&all, case.fastest())
            }
            _ => scaled(&case.samples, reference.best_ns),
        });
    }
    Ok(measured)
}

/// Nanoseconds of the samples that nothing disturbed.
fn good(samples: &[Sample], limit: f64) -> impl Iterator<Item = f64> {
    samples
        .iter()
        .filter(move |sample| sample.reference_ns <= limit)
        .map(|sample| sample.ns)
}

/// Another order in each round: what a case leaves behind in prefetchers and predictors must not always
/// meet the same one.
fn shuffle(order: &mut [usize], round: usize) {
    // Knuth's multiplier; the upper bits are the good ones.
    let mut state = round as u64;
    for last in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
}

/// Where no sample was left alone: as much less as the reference beside it would have taken at its best.
/// What shares a core slows similar work alike.
fn scaled(samples: &[Sample], best_ns: f64) -> f64 {
    let whole = samples.iter().filter(|s| s.reference_ns.is_finite());
    let scaled: Vec<f64> = whole.map(|s| s.ns * best_ns / s.reference_ns).collect();
    match scaled.is_empty() {
        false => typical(&scaled, 2),
        true => {
            let walls = samples.iter().map(|sample| sample.ns);
            walls.fold(f64::INFINITY, f64::min)
        }
    }
}

/// Nanoseconds that a sample takes without work.
fn clock_cost() -> Result<f64, MeasureError> {
    let mut costs = Vec::with_capacity(31);
    for _ in 0..31 {
        costs.push(Clocks::now()?.elapsed()?.wall_ns);
    }
    Ok(median(&costs))
}

/// The median of the fastest samples, one of so many: what disturbs only ever takes time, and a short
/// disturbance between two looks at the reference is not seen.
fn typical(samples: &[f64], one_of: usize) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples.truncate(samples.len().div_ceil(one_of).max(FEWEST));
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

    /// Check that each case is run in every round, and that a failure ends the measurement.
    #[test]
    fn rounds() {
        let library = Library::system().unwrap();
        let mut reference = Reference::new(&library, Duration::ZERO).unwrap();
        assert!(reference.best_ns > 0.0);
        let mut memory = Memory::default();
        let effort = Effort {
            rounds: 3,
            sample_ns: 1000.0,
            most_cpu: Duration::MAX,
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
        // Nothing left of the CPU time: the fewest samples are taken, and no more.
        let effort = Effort {
            rounds: 20,
            most_cpu: Duration::ZERO,
            ..effort
        };
        let measured = measure(&mut cases, &mut memory, &mut reference, effort).unwrap();
        assert_eq!(measured.ns.len(), 2);
        assert!(cases.iter().all(|case| case.samples.len() == FEWEST));
        let mut bad = [Case::new(|_, _| Err(CallError::TagMismatch))];
        let error = measure(&mut bad, &mut memory, &mut reference, effort).unwrap_err();
        assert!(matches!(error, MeasureError::Call(_)));
    }
}
