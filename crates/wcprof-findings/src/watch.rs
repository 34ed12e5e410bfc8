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

#[cfg(test)]
mod tests {
    use wcprof_profile::{ProfileBuilder, Rules};
    use wcprof_trace::model::{
        Frame, FrameId, Header, Names, NodeId, Process, ProcessId, Span, Stack, StackId, StackNode,
        Stats, SymbolFrame, SymbolTable, Tables, Thread, ThreadId,
    };
    use wcprof_types::{Avma, StackEnd, ThreadState, TimeNs};

    use super::*;

    const S: u64 = 1_000_000_000;

    /// A second of threads `w-0`, `w-1` ..., each on-CPU for so many percent of it in
    /// `work(int)`, runnable for the rest.
    fn second(percents: &[u64]) -> Profile {
        let mut builder = ProfileBuilder::new();
        let mut threads = Vec::new();
        for (at, percent) in (0..).zip(percents) {
            threads.push(Thread {
                process: ProcessId(0),
                tid: Tid(10 + at),
                names: vec![(TimeNs(0), format!("w-{at}"))],
                start: TimeNs(0),
                end: TimeNs(S),
                n_ticks: 100,
            });
            for (state, weight, stack) in [
                (ThreadState::OnCpu, S / 100 * percent, Some(StackId(0))),
                (ThreadState::Runnable, S / 100 * (100 - percent), None),
            ] {
                builder.add_span(&Span {
                    thread: ThreadId(at as u32),
                    start: TimeNs(0),
                    end: TimeNs(S),
                    weight,
                    n_samples: 1,
                    state,
                    wait: None,
                    stack,
                });
            }
        }
        let name = SymbolFrame {
            name: "ns::work(int)".into(),
            file: None,
            line: None,
            inlined: false,
            resolved: true,
        };
        let symbols = SymbolTable {
            frames: BTreeMap::from([(FrameId(0), vec![name])]),
        };
        let header = Header {
            wcprof_version: String::new(),
            engine: "bpf".into(),
            notes: Vec::new(),
            rate_hz: 100,
            host: String::new(),
            kernel: String::new(),
            n_cpus: 1,
            started_unix_ns: 0,
        };
        let tables = Tables {
            processes: vec![Process {
                pid: Pid(9),
                comm: "p".into(),
                cmdline: Vec::new(),
                cgroup: String::new(),
                birth: String::new(),
            }],
            threads,
            frames: vec![Frame::Unmapped(Avma(1))],
            nodes: vec![StackNode {
                caller: None,
                frame: FrameId(0),
            }],
            stacks: vec![Stack {
                leaf: Some(NodeId(0)),
                end: StackEnd::Root,
            }],
            stats: Stats {
                duration: TimeNs(S),
                ..Stats::default()
            },
            names: Names {
                symbols: Some(symbols),
                ..Names::default()
            },
            ..Tables::new(header)
        };
        builder.finish(&tables, None, &Rules::builtin().unwrap())
    }

    fn taken(text: &str, seconds: &[&[u64]]) -> Vec<Option<u32>> {
        let mut watch = Watch::new(text.parse().unwrap());
        let shares = seconds.iter().map(|s| watch.take(&second(s)));
        shares
            .map(|percent| percent.map(|p| (p * 10.0).round() as u32))
            .collect()
    }

    /// Check that the mean of a counter is of the window as a whole, and of one process.
    #[test]
    fn counter() {
        let course = [(10, 100), (0, 0), (30, 900), (1, 1000), (0, 0), (0, 0)];
        let mut watch = Watch::new("op_latency > 20ms over 2s".parse().unwrap());
        let values = course.map(|(count, ms)| {
            let mut profile = second(&[]);
            let process = &mut profile.processes[0];
            let value = CounterValue {
                count,
                time_ns: ms * 1_000_000,
            };
            process
                .counters
                .grown
                .insert("osd.op_latency".into(), value);
            let mut other = process.clone();
            other.pid = Pid(10);
            other
                .counters
                .grown
                .insert("osd.op_latency".into(), CounterValue::default());
            profile.processes.push(other);
            watch.take(&profile).map(|ns| (ns / 1e6).round() as u64)
        });
        assert_eq!(values, [None, None, Some(30), Some(61), Some(1000), None]);
    }

    /// Check that what is counted is named once when the window was full without the condition's counter, and not
    /// where that was counted.
    #[test]
    fn counted_instead() {
        let told = |course: [&str; 4]| {
            let mut watch = Watch::new("op_latency > 20ms over 2s".parse().unwrap());
            course.map(|name| {
                let mut profile = second(&[]);
                let (count, time_ns) = (1, 1);
                let grown = &mut profile.processes[0].counters.grown;
                grown.insert(name.into(), CounterValue { count, time_ns });
                watch.take(&profile);
                let others = watch.counted_instead()?;
                Some(Vec::from_iter(others).join(" "))
            })
        };
        let other = "osd.op_lat";
        let names = Some("a.b osd.op_lat".to_owned());
        assert_eq!(
            told([other, "a.b", other, other]),
            [None, names, None, None]
        );
        assert_eq!(
            told([other, "osd.op_latency", other, other]),
            [const { None }; 4]
        );
    }

    /// Check that a window must be full and is the last one, for threads together, the one at a
    /// percentile, a function, and a share that is too low.
    #[test]
    fn windows() {
        let calm: &[u64] = &[0, 10];
        let busy: &[u64] = &[40, 90];
        let course = [busy, calm, calm, busy, busy, calm];
        let (none, some) = (None, Some);
        assert_eq!(
            taken("on-cpu of all > 30% over 2s", &course),
            [none, some(350), none, some(350), some(650), some(350)]
        );
        assert_eq!(
            taken("max on-cpu of w-* > 80% over 2s", &course),
            [none, none, none, none, some(900), none]
        );
        assert_eq!(
            taken("p50 on-cpu of w-N < 14% over 3s", &course),
            [none, none, some(133), some(133), none, none]
        );
        assert_eq!(
            taken("func:ns::work of all > 60% over 2s", &course),
            [none, none, none, none, some(650), none]
        );
        assert_eq!(
            taken("runnable of w-1 > 85% over 2s", &course),
            [none, none, some(900), none, none, none]
        );
        assert_eq!(taken("on-cpu of other < 50% over 2s", &course), [none; 6]);
        assert_eq!(
            taken("min on-cpu of all < 1% over 2s", &[calm, calm]),
            [none, some(0)]
        );
    }
}
