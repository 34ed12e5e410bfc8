//! A scheduler model with known answers: counters that settle late, as the kernel's do.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wcprof_types::ThreadState;

use super::*;

const MS: u64 = 1_000_000;
const TICK: u64 = 10 * MS + 101_010;

/// Weight by state and place.
type Weights = BTreeMap<(ThreadState, Option<u32>), u64>;

/// What the modelled thread does, one after the other, each for some time.
#[derive(Copy, Clone, Debug)]
enum Act {
    Run(u64),
    Wait(u64),
    Block(u64, u32),
}

/// The kernel's view while the acts are played: run time settles at 4 ms boundaries and switches,
/// run-queue delay when the thread gets a CPU.
struct Model {
    acts: Vec<(u64, u64, Act)>,
    end: u64,
}

impl Model {
    fn new(acts: &[Act]) -> Self {
        let mut at = 0;
        let mut list = Vec::new();
        for &act in acts {
            let (Act::Run(ns) | Act::Wait(ns) | Act::Block(ns, _)) = act;
            list.push((at, at + ns, act));
            at += ns;
        }
        Self {
            acts: list,
            end: at,
        }
    }

    fn at(&self, time: u64, live_wait: bool) -> Observation<u32> {
        let (mut run, mut delay, mut switches, mut voluntary) = (0, 0, 0, 0);
        let mut sched = Sched::Blocked;
        let mut place = None;
        for (i, &(start, end, act)) in self.acts.iter().enumerate() {
            if start > time {
                break;
            }
            let over = end <= time;
            match act {
                Act::Run(_) => {
                    let settled = 4 * MS * (time / (4 * MS));
                    run += match over {
                        true => end - start,
                        false => settled.clamp(start, time) - start,
                    };
                    sched = Sched::OnCpu;
                    place = None;
                    if over {
                        switches += 1;
                        let blocks = matches!(self.acts.get(i + 1), Some((_, _, Act::Block(..))));
                        voluntary += u64::from(blocks);
                    }
                }
                Act::Wait(_) => {
                    if over {
                        delay += end - start;
                    }
                    sched = Sched::Queued {
                        waited_ns: live_wait.then_some(time - start),
                    };
                    place = Some(1000);
                }
                Act::Block(_, p) => {
                    sched = Sched::Blocked;
                    place = Some(p);
                }
            }
        }
        Observation {
            time,
            sched,
            switches,
            voluntary: Some(voluntary),
            run_ns: run,
            delay_ns: delay,
            place,
            n_ticks: 1,
        }
    }

    /// Plays all acts; weight by (state, place), and the pieces.
    fn play(&self, live_wait: bool) -> (Weights, Vec<Piece<u32>>) {
        let mut ledger = Ledger::new(self.at(0, live_wait));
        let mut pieces = Vec::new();
        let mut time = TICK;
        let mut before = 0;
        loop {
            let now = time.min(self.end);
            // The timer samples a running thread once a tick, at its middle.
            let middle = before + (now - before) / 2;
            let mut hits = Vec::new();
            if self.at(middle, true).sched == Sched::OnCpu {
                hits.push(TimerHit {
                    time: middle,
                    place: 2000,
                    guest: false,
                });
            }
            ledger.observe(self.at(now, live_wait), &hits, &mut |p| pieces.push(p));
            before = now;
            if now == self.end {
                break;
            }
            time += TICK;
        }
        ledger.finish(&mut |p| pieces.push(p));
        let mut by = BTreeMap::new();
        for p in &pieces {
            *by.entry((p.state, p.place)).or_insert(0) += p.weight;
        }
        (by, pieces)
    }
}

fn sum(by: &Weights, state: ThreadState) -> u64 {
    by.iter()
        .filter(|((s, _), _)| *s == state)
        .map(|(_, w)| w)
        .sum()
}

/// Check that a spinner is on-CPU all the time: late counters never show as blocked or stolen.
#[test]
fn spinner() {
    let model = Model::new(&[Act::Run(1003 * MS)]);
    let (by, _) = model.play(true);
    assert_eq!(sum(&by, ThreadState::OnCpu), 1003 * MS);
    assert_eq!(by.len(), 1, "{by:?}");
}

/// Check that a spinner that the hypervisor robs of a fifth of its time shows it as stolen.
#[test]
fn stolen_time() {
    let first = Model::new(&[Act::Run(2000 * MS)]);
    let mut ledger = Ledger::new(first.at(0, true));
    let mut by = BTreeMap::new();
    for i in 1..=100 {
        let mut now = first.at(i * 20 * MS, true);
        now.run_ns = now.run_ns / 5 * 4;
        let hit = TimerHit {
            time: now.time - 1,
            place: 1,
            guest: false,
        };
        ledger.observe(now, &[hit], &mut |p: Piece<u32>| {
            *by.entry((p.state, p.place)).or_insert(0) += p.weight;
        });
    }
    ledger.finish(&mut |p| *by.entry((p.state, p.place)).or_insert(0) += p.weight);
    let steal = sum(&by, ThreadState::StealIrq);
    assert!((380 * MS..=400 * MS).contains(&steal), "{steal}");
    assert_eq!(sum(&by, ThreadState::Blocked), 0);
}

/// Check that a thread starved for 300 ms shows it as runnable in the ticks in which it waited,
/// although the kernel counts the delay only when it is over.
#[test]
fn starved() {
    for live_wait in [true, false] {
        let acts = [Act::Run(100 * MS), Act::Wait(300 * MS), Act::Run(100 * MS)];
        let (by, pieces) = Model::new(&acts).play(live_wait);
        let runnable = sum(&by, ThreadState::Runnable);
        assert!(
            (288 * MS..=312 * MS).contains(&runnable),
            "{live_wait} {by:?}"
        );
        assert_eq!(sum(&by, ThreadState::Blocked), 0);
        let early: u64 = pieces
            .iter()
            .filter(|p| p.state == ThreadState::Runnable && p.end <= 250 * MS)
            .map(|p| p.weight)
            .sum();
        assert!(
            (125 * MS..=150 * MS).contains(&early),
            "{live_wait} {early}"
        );
    }
}

/// Check that a blocked thread's time goes to the wait it was seen in.
#[test]
fn long_waits() {
    let acts = [
        Act::Block(500 * MS, 1),
        Act::Run(MS),
        Act::Block(300 * MS, 2),
    ];
    let (by, _) = Model::new(&acts).play(true);
    let blocked = |p| by[&(ThreadState::Blocked, Some(p))];
    assert!(blocked(1).abs_diff(500 * MS) <= TICK / 2 + MS, "{by:?}");
    assert!(blocked(2).abs_diff(300 * MS) <= TICK / 2 + MS, "{by:?}");
    assert_eq!(sum(&by, ThreadState::OnCpu), MS);
}

/// Check that sleeps shorter than a tick get their shares: 9 of 10 ms in one place, 0.5 in
/// another, and exact run time.
#[test]
fn short_sleeps() {
    let mut acts = Vec::new();
    for _ in 0..2000 {
        acts.push(Act::Run(400_000));
        acts.push(Act::Block(6_300_000, 1));
        acts.push(Act::Run(100_000));
        acts.push(Act::Block(500_000, 2));
    }
    let (by, _) = Model::new(&acts).play(true);
    let total = 2000 * 7_300_000;
    assert_eq!(by.values().sum::<u64>(), total);
    assert_eq!(sum(&by, ThreadState::OnCpu), 2000 * 500_000);
    let share = by[&(ThreadState::Blocked, Some(2))] as f64 / total as f64;
    assert!((share - 500_000.0 / 7_300_000.0).abs() < 0.015, "{share}");
}

/// Check that a thread that ran but was never sampled keeps its exact run time, without a place.
#[test]
fn never_sampled() {
    let blocked = |time, run_ns, switches| Observation {
        time,
        sched: Sched::Blocked,
        switches,
        voluntary: Some(switches),
        run_ns,
        delay_ns: 0,
        place: Some(7),
        n_ticks: 1,
    };
    let mut by = BTreeMap::new();
    let mut ledger = Ledger::new(blocked(0, 0, 0));
    for i in 1..=10 {
        ledger.observe(blocked(i * TICK, i * 1000, i), &[], &mut |p: Piece<u32>| {
            *by.entry((p.state, p.place)).or_insert(0) += p.weight;
        });
    }
    ledger.finish(&mut |p| *by.entry((p.state, p.place)).or_insert(0) += p.weight);
    assert_eq!(by[&(ThreadState::OnCpu, None)], 10_000);
    assert_eq!(by.values().sum::<u64>(), 10 * TICK);
}

/// Check that a torn stack gives its time to the next one that is whole, not to none.
#[test]
fn torn_stack() {
    let blocked = |time, switches, place| Observation {
        time,
        sched: Sched::Blocked,
        switches,
        voluntary: Some(switches),
        run_ns: 0,
        delay_ns: 0,
        place,
        n_ticks: 1,
    };
    let mut by = BTreeMap::new();
    let mut ledger = Ledger::new(blocked(0, 0, None));
    let mut emit = |p: Piece<u32>| *by.entry((p.state, p.place)).or_insert(0) += p.weight;
    ledger.observe(blocked(100, 1, None), &[], &mut emit);
    ledger.observe(blocked(200, 2, Some(5)), &[], &mut emit);
    ledger.finish(&mut emit);
    assert_eq!(by, BTreeMap::from([((ThreadState::Blocked, Some(5)), 200)]));
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..60 * MS).prop_map(Act::Run),
        (1..60 * MS).prop_map(Act::Wait),
        (1..60 * MS, 1..4_u32).prop_map(|(ns, p)| Act::Block(ns, p)),
    ]
}

proptest! {
    /// Check on random threads that the weights add up to the observed time, that no piece weighs
    /// more than its interval, and that run time is exact to a scheduler tick.
    #[test]
    fn adds_up(acts in prop::collection::vec(act(), 1..60), live_wait: bool) {
        let model = Model::new(&acts);
        let (by, pieces) = model.play(live_wait);
        prop_assert_eq!(by.values().sum::<u64>(), model.end);
        for p in &pieces {
            prop_assert!(p.weight <= p.end - p.start, "{:?}", p);
        }
        let ran: u64 = acts.iter().map(|a| if let Act::Run(ns) = a { *ns } else { 0 }).sum();
        let shown = sum(&by, ThreadState::OnCpu);
        prop_assert!(shown.abs_diff(ran) <= 12 * MS, "{} {}", shown, ran);
    }
}
