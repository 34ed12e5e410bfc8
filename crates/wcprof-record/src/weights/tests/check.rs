//! Many threads of one program on a machine to what the ledger made of them, against what they did.

use wcprof_types::{Sched, ThreadState};

use super::MS;
use super::machine::{Around, Machine, Random, Step};
use super::model::{Model, VIEWS, View, Weights};
use super::play::{play, sum, timer_period_ns, weights};

/// For how long the ledger leaves run time unsettled.
pub(super) const SETTLE_NS: u64 = 12 * MS;

/// What is recorded, and how.
#[derive(Copy, Clone, Debug)]
pub(super) struct Setup {
    pub(super) rate: u64,
    pub(super) n_threads: u64,
    /// Busy threads of the target on the CPU of each.
    pub(super) rivals: u64,
    pub(super) seconds: u64,
}

/// A thread's program: what it does next.
pub(super) type Program = Box<dyn FnMut(u64, &mut Random) -> Step>;

/// What the ledger made of threads, and what they did.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Of which machine, and seen how.
    pub(super) around: Around,
    pub(super) view: View,
    got: Weights,
    pub(super) truth: Weights,
    /// Timer samples, and observations of blocked threads.
    n_hits: u64,
    n_blocked: u64,
    /// What the counters and the views leave open of the first and the last moments, ns.
    open: u64,
    /// Time for which the machine stood still, of all threads, ns.
    pub(super) paused: f64,
    /// The sum of the squares of these times, ns², and of those that the kernel took for run time.
    paused_squares: f64,
    frozen_squares: f64,
}

impl Setup {
    /// Records the threads on each machine by each view.
    pub(super) fn record(&self, program: impl Fn(&Machine, u64) -> Program) -> Vec<Outcome> {
        let mut all = Vec::new();
        for around in Around::ALL {
            let machine = Machine::new(around, self.seconds * 1000 * MS);
            let ticks = machine.ticks(self.rate, &mut Random::new(997));
            let period = timer_period_ns(self.rate);
            let mut outcomes = VIEWS.map(|view| Outcome::new(&machine, view));
            for thread in 0..self.n_threads {
                let mut random = Random::new(thread);
                let mut program = program(&machine, thread);
                let model = machine.thread(self.rivals, &mut random, &mut program);
                let phase = random.below(period);
                for outcome in &mut outcomes {
                    outcome.add(&model, &machine, &ticks, (period, phase));
                }
            }
            all.extend(outcomes);
        }
        all
    }
}

impl Outcome {
    fn new(machine: &Machine, view: View) -> Self {
        Self {
            around: machine.around,
            view,
            got: Weights::new(),
            truth: Weights::new(),
            n_hits: 0,
            n_blocked: 0,
            open: 0,
            paused: 0.0,
            paused_squares: 0.0,
            frozen_squares: 0.0,
        }
    }

    /// Plays one more thread.
    fn add(&mut self, model: &Model, machine: &Machine, ticks: &[u64], timer: (u64, u64)) {
        let pieces = play(model, self.view, ticks, timer);
        for (key, weight) in weights(&pieces) {
            *self.got.entry(key).or_default() += weight;
        }
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        for (key, weight) in model.truth(first, last) {
            *self.truth.entry(key).or_default() += weight;
        }
        for p in &pieces {
            match p.state {
                ThreadState::Blocked => self.n_blocked += u64::from(p.n_samples),
                ThreadState::OnCpu => self.n_hits += u64::from(p.n_samples),
                _ => {}
            }
        }
        self.paused += machine.pauses().sum::<f64>();
        let squares = |lengths: &mut dyn Iterator<Item = f64>| lengths.map(|l| l * l).sum::<f64>();
        self.paused_squares += squares(&mut machine.pauses());
        self.frozen_squares += squares(&mut model.frozen());
        self.open += model.unsettled(first);
        if model.at(last, View::Whole).sched != Sched::Blocked {
            let interval = last - ticks[ticks.len() - 2];
            self.open += SETTLE_NS + interval + model.unsettled(last);
        }
    }

    /// Time of a state: as it was given, and the truth.
    pub(super) fn sums(&self, state: ThreadState) -> (u64, u64) {
        (sum(&self.got, state), sum(&self.truth, state))
    }

    /// Asserts that each state has its time, but for what both ends leave open. What is stolen of a
    /// thread that sleeps too is taken for sleep.
    #[track_caller]
    pub(super) fn assert_states(&self) {
        use ThreadState::{Blocked, OnCpu, Runnable, StealIrq};
        let [on_cpu, runnable, blocked, steal] =
            [OnCpu, Runnable, Blocked, StealIrq].map(|state| self.sums(state));
        let neither = (blocked.0 + steal.0, blocked.1 + steal.1);
        self.assert_open("on-CPU", on_cpu);
        self.assert_open("runnable", runnable);
        self.assert_open("neither", neither);
        self.assert_open("stolen", (steal.0.max(steal.1), steal.1));
    }

    /// Asserts that a time is the truth, but for what both ends leave open.
    #[track_caller]
    pub(super) fn assert_open(&self, what: &str, (got, truth): (u64, u64)) {
        assert!(
            got.abs_diff(truth) <= self.open,
            "{:?} {:?} {what}: {got} ns, truth {truth} ns, open {} ns",
            self.around,
            self.view,
            self.open
        );
    }

    /// Time that all threads were observed for, ns.
    pub(super) fn observed(&self) -> f64 {
        self.truth.values().sum::<u64>() as f64
    }

    /// Time of a state in a place, ns: as it was given, and the truth.
    pub(super) fn weights_of(&self, state: ThreadState, place: u32) -> (f64, f64) {
        let of = |by: &Weights| by.get(&(state, Some(place))).copied().unwrap_or(0) as f64;
        (of(&self.got), of(&self.truth))
    }

    /// Asserts that a place has its share of a state's time, to four standard deviations of the number
    /// of samples and `bias`. What a thread did while the machine stood still is one sample, whatever
    /// it weighs, and one act of the truth: it errs twice.
    #[track_caller]
    pub(super) fn assert_share(&self, state: ThreadState, place: u32, bias: f64) {
        let (part, sum) = (self.weights_of(state, place), self.sums(state));
        let total = sum.1 as f64;
        let (got, truth) = (part.0 / sum.0 as f64, part.1 / total);
        let (n, squares) = match state {
            ThreadState::OnCpu => (self.n_hits, self.frozen_squares),
            _ => (self.n_blocked, self.paused_squares),
        };
        let variance = 1.0 / n as f64 + 2.0 * squares / (total * total);
        let sigma = (truth * (1.0 - truth) * variance).sqrt();
        let allowed = 4.0 * sigma + bias;
        assert!(
            (got - truth).abs() <= allowed,
            "{:?} {:?}: share {got:.4}, truth {truth:.4}, {n} samples, allowed {allowed:.4}",
            self.around,
            self.view
        );
    }
}
