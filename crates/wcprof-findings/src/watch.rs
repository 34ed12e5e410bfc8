//! Profiles of a second each to the shares that conditions are about.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use wcprof_profile::model::{Profile, Row};
use wcprof_types::{CounterValue, Pid, Tid};

use crate::condition::{Condition, Subject};

/// A condition, and the time that it is tested on.
#[derive(Debug)]
pub struct Watch {
    /// What it tests.
    pub condition: Condition,
    steps: VecDeque<Step>,
    /// Counters of times that grew, until the one that it is about did; `None` from then on, or once they were asked for.
    others: Option<BTreeSet<String>>,
}

/// The time of one profile, ns.
#[derive(Debug)]
struct Step {
    length: u64,
    /// Of each thread the time that counts, and all of it.
    threads: HashMap<(Pid, Tid), (u64, u64)>,
    /// Of each process, what the counter grew by.
    counters: BTreeMap<Pid, CounterValue>,
}

impl Watch {
    /// Nothing is known yet.
    pub fn new(condition: Condition) -> Self {
        Self {
            others: condition.counter().map(|_| BTreeSet::new()),
            condition,
            steps: VecDeque::new(),
        }
    }

    /// What processes count instead of its counter, once: when they have counted for as long as its window is, and
    /// that was never among it.
    pub fn counted_instead(&mut self) -> Option<BTreeSet<String>> {
        let is_full = self.length() >= self.window_ns();
        let is_known = self
            .others
            .as_ref()
            .is_some_and(|others| !others.is_empty());
        (is_full && is_known).then(|| self.others.take())?
    }

    /// Takes the profile that follows the last one; gives the value (percent, or of a counter ns) if the condition
    /// holds in its window, which must be full.
    pub fn take(&mut self, profile: &Profile) -> Option<f64> {
        self.note_counters(profile);
        self.steps.push_back(step(&self.condition, profile));
        let (window, mut length) = (self.window_ns(), self.length());
        while let Some(first) = self.steps.front()
            && length - first.length >= window
        {
            length -= first.length;
            self.steps.pop_front();
        }
        if length < window {
            return None;
        }
        let value = match self.condition.counter() {
            Some(_) => return self.means().find(|mean| self.condition.holds(*mean)),
            None => 100.0 * self.share()?,
        };
        self.condition.holds(value).then_some(value)
    }

    fn window_ns(&self) -> u64 {
        u64::try_from(self.condition.window.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The time that is tested, ns.
    fn length(&self) -> u64 {
        self.steps.iter().map(|step| step.length).sum()
    }

    fn note_counters(&mut self, profile: &Profile) {
        let Some(others) = &mut self.others else {
            return;
        };
        let processes = profile.processes.iter();
        let grown = processes.flat_map(|process| &process.counters.grown);
        if grown.clone().any(|(name, _)| self.condition.is_about(name)) {
            self.others = None;
        } else {
            let times = grown.filter(|(_, value)| value.time_ns > 0);
            others.extend(times.map(|(name, _)| name.clone()));
        }
    }

    /// The mean of the counter in each process that counted something.
    fn means(&self) -> impl Iterator<Item = f64> {
        let mut sums: BTreeMap<Pid, CounterValue> = BTreeMap::new();
        for (process, value) in self.steps.iter().flat_map(|step| &step.counters) {
            let sum = sums.entry(*process).or_default();
            *sum = sum.plus(*value);
        }
        let sums = sums.into_values().filter(|sum| sum.count > 0);
        sums.map(|sum| sum.time_ns as f64 / sum.count as f64)
    }

    /// `None` without any time of the threads that it is about.
    fn share(&self) -> Option<f64> {
        let mut sums: HashMap<(Pid, Tid), (u64, u64)> = HashMap::new();
        for (thread, (part, whole)) in self.steps.iter().flat_map(|step| &step.threads) {
            let sum = sums.entry(*thread).or_default();
            *sum = (sum.0 + part, sum.1 + whole);
        }
        sums.retain(|_, (_, whole)| *whole > 0);
        let share = |(part, whole): (u64, u64)| part as f64 / whole as f64;
        let Some(percentile) = self.condition.percentile else {
            let sums = sums.into_values();
            let all = sums.reduce(|a, b| (a.0 + b.0, a.1 + b.1));
            return all.map(share);
        };
        let mut shares: Vec<f64> = sums.into_values().map(share).collect();
        shares.sort_by(f64::total_cmp);
        let rank = (shares.len() * usize::from(percentile))
            .div_ceil(100)
            .max(1);
        shares.get(rank - 1).copied()
    }
}

fn step(condition: &Condition, profile: &Profile) -> Step {
    let functions = profile.functions.iter();
    let is_wanted = functions.map(|f| match &condition.subject {
        Subject::State(_) | Subject::Counter(_) => false,
        Subject::Function(glob) => {
            let bare = f.name.split_once('(').map_or("", |(bare, _)| bare);
            glob.is_match(&f.name) || (!bare.is_empty() && glob.is_match(bare))
        }
    });
    let is_wanted: Vec<bool> = is_wanted.collect();
    let counts = |row: &Row| match &condition.subject {
        Subject::State(state) => row.state == *state,
        Subject::Counter(_) => false,
        Subject::Function(_) => row.stack.is_some_and(|id| {
            let mut frames = profile.stacks[id.0 as usize].frames.iter();
            frames.any(|f| is_wanted[f.0 as usize])
        }),
    };
    // By thread.
    let mut sums = vec![(0, 0); profile.threads.len()];
    for row in &profile.rows {
        let (part, whole) = &mut sums[row.thread];
        *part += if counts(row) { row.weight } else { 0 };
        *whole += row.weight;
    }
    let threads = profile.threads.iter().zip(sums);
    let threads = threads.filter(|(thread, _)| {
        condition.threads.as_ref().is_none_or(|glob| {
            glob.is_match(&profile.pools[thread.pool].name) || glob.is_match(&thread.comm)
        })
    });
    Step {
        length: profile.duration_ns(),
        threads: threads.map(|(t, sums)| ((t.pid, t.tid), sums)).collect(),
        counters: counters(condition, profile).collect(),
    }
}

/// What the condition's counter grew by, by process.
fn counters(condition: &Condition, profile: &Profile) -> impl Iterator<Item = (Pid, CounterValue)> {
    profile.processes.iter().map(|process| {
        let grown = process.counters.grown.iter();
        let grown = grown.filter(|(name, _)| condition.is_about(name));
        let sum = grown.fold(CounterValue::default(), |sum, (_, value)| sum.plus(*value));
        (process.pid, sum)
    })
}
