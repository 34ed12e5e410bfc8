//! A list of acts of one thread to what the kernel counts at any time, to timer samples, and to the truth.
//!
//! Run time settles at scheduler ticks (every 4 ms), at switches and where the thread reads its CPU
//! clock; run-queue delay when the thread gets a CPU.

use std::collections::BTreeMap;

use wcprof_types::{Sched, ThreadState};

use super::MS;
use crate::weights::{Observation, TimerHit};

/// Weight by state and place, ns.
pub(super) type Weights = BTreeMap<(ThreadState, Option<u32>), u64>;

/// Where a thread is seen that waits for a CPU.
pub(super) const QUEUED_AT: u32 = 1000;
/// A place to run in where it does not matter which.
pub(super) const WORK: u32 = 2000;

pub(super) const SCHEDULER_TICK: u64 = 4 * MS;

/// What the modelled thread does, one after the other, each for some ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// On a CPU, in a place.
    Run(u64, u32),
    /// It reads its CPU clock.
    Clock,
    /// On a CPU that the hypervisor took away and told the kernel of: no run time.
    Robbed(u64, u32),
    /// The same, but the kernel was not told and takes it for run time.
    Frozen(u64, u32),
    Wait(u64),
    Block(u64, u32),
}

impl Act {
    fn ns(self) -> u64 {
        match self {
            Self::Clock => 0,
            Self::Run(ns, _)
            | Self::Robbed(ns, _)
            | Self::Frozen(ns, _)
            | Self::Wait(ns)
            | Self::Block(ns, _) => ns,
        }
    }

    fn is_on_cpu(self) -> bool {
        !matches!(self, Self::Wait(_) | Self::Block(..))
    }

    /// Neither scheduler ticks nor timers come.
    fn is_stopped(self) -> bool {
        matches!(self, Self::Robbed(..) | Self::Frozen(..))
    }

    fn is_counted(self) -> bool {
        matches!(self, Self::Run(..) | Self::Frozen(..))
    }
}

/// What an engine sees of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// On a CPU or queued, and since when.
    Whole,
    /// On a CPU or queued.
    NoSince,
    /// Running and queued look alike, and what is counted is how often it got a CPU.
    Blurred,
}

pub(super) const VIEWS: [View; 3] = [View::Whole, View::NoSince, View::Blurred];

/// An act in time, and what was counted when it began.
struct Stretch {
    start: u64,
    end: u64,
    act: Act,
    run: u64,
    delay: u64,
    switches: u64,
    voluntary: u64,
    /// How often it got a CPU, for this act too.
    n_runs: u64,
    /// When run time surely was settled last.
    settled: u64,
}

pub(super) struct Model {
    stretches: Vec<Stretch>,
    pub(super) end: u64,
}

impl Model {
    pub(super) fn new(acts: &[Act]) -> Self {
        let mut stretches: Vec<Stretch> = Vec::with_capacity(acts.len());
        let mut end = 0;
        for &act in acts {
            let mut next = Stretch {
                start: end,
                end: end + act.ns(),
                act,
                run: 0,
                delay: 0,
                switches: 0,
                voluntary: 0,
                n_runs: 0,
                settled: end,
            };
            let mut was_on_cpu = false;
            if let Some(last) = stretches.last() {
                was_on_cpu = last.act.is_on_cpu();
                let leaves = was_on_cpu && !act.is_on_cpu();
                let counted = |is_counted: bool| if is_counted { last.act.ns() } else { 0 };
                next.run = last.run + counted(last.act.is_counted());
                next.delay = last.delay + counted(matches!(last.act, Act::Wait(_)));
                next.switches = last.switches + u64::from(leaves);
                let waits = leaves && matches!(act, Act::Block(..));
                next.voluntary = last.voluntary + u64::from(waits);
                next.n_runs = last.n_runs;
                if was_on_cpu && last.act != Act::Clock {
                    next.settled = last.settled;
                }
            }
            next.n_runs += u64::from(act.is_on_cpu() && !was_on_cpu);
            end = next.end;
            stretches.push(next);
        }
        Self { stretches, end }
    }

    fn stretch_at(&self, time: u64) -> &Stretch {
        let n = self.stretches.partition_point(|s| s.start <= time);
        &self.stretches[n - 1]
    }

    /// What an engine sees at a time.
    pub(super) fn at(&self, time: u64, view: View) -> Observation<u32> {
        let now = self.stretch_at(time);
        let (sched, place) = match now.act {
            Act::Block(_, place) => (Sched::Blocked, Some(place)),
            _ if view == View::Blurred => (Sched::Running, None),
            Act::Wait(_) => {
                let waited_ns = (view == View::Whole).then_some(time - now.start);
                (Sched::Queued { waited_ns }, Some(QUEUED_AT))
            }
            _ => (Sched::OnCpu, None),
        };
        Observation {
            time,
            sched,
            stopped: false,
            dumps: false,
            switches: match view {
                View::Blurred => now.n_runs,
                _ => now.switches,
            },
            voluntary: (view != View::Blurred).then_some(now.voluntary),
            run_ns: match now.act.is_on_cpu() {
                true => self.run_until(self.settled_before(time, now.settled)),
                false => now.run,
            },
            delay_ns: now.delay,
            guest_ns: 0,
            place,
            n_ticks: 1,
        }
    }

    /// When the run time of a thread that is on a CPU was settled last.
    fn settled_before(&self, time: u64, surely: u64) -> u64 {
        let last_tick = |time: u64| time - time % SCHEDULER_TICK;
        let tick = last_tick(time);
        let there = self.stretch_at(tick);
        let tick = match there.act.is_stopped() {
            // It came when the CPU did.
            true if there.end <= time => there.end,
            true => last_tick(there.start),
            false => tick,
        };
        tick.max(surely)
    }

    /// Run time until a moment, settled or not.
    fn run_until(&self, time: u64) -> u64 {
        let there = self.stretch_at(time);
        let more = time.min(there.end) - there.start;
        there.run + if there.act.is_counted() { more } else { 0 }
    }

    /// For how long its CPU was away each time that the kernel took for run time, ns.
    pub(super) fn frozen(&self) -> impl Iterator<Item = f64> + '_ {
        self.stretches.iter().filter_map(|s| match s.act {
            Act::Frozen(ns, _) => Some(ns as f64),
            _ => None,
        })
    }

    /// Until when the thread is blocked in a place, if it is at a time.
    pub(super) fn blocked_until(&self, time: u64, place: u32) -> Option<u64> {
        let now = self.stretch_at(time);
        matches!(now.act, Act::Block(_, p) if p == place).then_some(now.end)
    }

    /// What the kernel has not counted yet at a time of what the thread does then, ns.
    pub(super) fn unsettled(&self, time: u64) -> u64 {
        let now = self.stretch_at(time);
        match now.act {
            Act::Wait(_) => time - now.start,
            Act::Block(..) => 0,
            _ => self.run_until(time) - self.at(time, View::Whole).run_ns,
        }
    }

    /// The samples of a perf timer. It runs on a grid of wall-clock time on each CPU, or `by_thread` on
    /// one of the time that the thread is on a CPU. What is due while the CPU stands still comes once,
    /// when it goes on.
    pub(super) fn hits(&self, period: u64, phase: u64, by_thread: bool) -> Vec<TimerHit<u32>> {
        let mut hits = Vec::new();
        let mut on_cpu = 0;
        for stretch in &self.stretches {
            let (Act::Run(ns, place) | Act::Robbed(ns, place) | Act::Frozen(ns, place)) =
                stretch.act
            else {
                continue;
            };
            let clock = if by_thread { on_cpu } else { stretch.start };
            on_cpu += ns;
            let mut due = (clock + phase).next_multiple_of(period) - phase;
            while due < clock + ns {
                let stopped = stretch.act.is_stopped();
                hits.push(TimerHit {
                    time: match stopped {
                        true => stretch.end,
                        false => stretch.start + (due - clock),
                    },
                    place,
                    state: ThreadState::OnCpu,
                });
                due = if stopped { u64::MAX } else { due + period };
            }
        }
        hits
    }

    /// What the thread really did in a stretch of time.
    pub(super) fn truth(&self, from: u64, to: u64) -> Weights {
        let mut truth = Weights::new();
        for stretch in &self.stretches {
            let ns = stretch.end.min(to).saturating_sub(stretch.start.max(from));
            let key = match stretch.act {
                Act::Run(_, place) | Act::Frozen(_, place) => (ThreadState::OnCpu, Some(place)),
                Act::Robbed(..) => (ThreadState::StealIrq, None),
                Act::Wait(_) => (ThreadState::Runnable, None),
                Act::Block(_, place) => (ThreadState::Blocked, Some(place)),
                Act::Clock => continue,
            };
            *truth.entry(key).or_default() += ns;
        }
        truth
    }
}
