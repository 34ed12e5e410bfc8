//! Single threads, played by hand and at random.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wcprof_types::{Sched, ThreadState};

use super::MS;
use super::model::{Act, Model, VIEWS, View, WORK, Weights};
use super::play::{play, sum, timer_period_ns, weights};
use crate::weights::{Ledger, Observation, Piece, TimerHit};

/// At 99 Hz.
const TICK: u64 = 10 * MS + 101_010;

impl Model {
    /// Plays all acts; weight by (state, place), and the pieces.
    fn play(&self, view: View) -> (Weights, Vec<Piece<u32>>) {
        self.play_late(view, &mut || 0)
    }

    /// The same with ticks that are late by what `late` gives.
    fn play_late(&self, view: View, late: &mut dyn FnMut() -> u64) -> (Weights, Vec<Piece<u32>>) {
        let mut ticks = vec![0];
        let (mut due, mut last) = (0, 0);
        while last < self.end {
            due = last.max(due + TICK) + late();
            last = due.min(self.end);
            ticks.push(last);
        }
        let pieces = play(self, view, &ticks, (timer_period_ns(99), 0));
        (weights(&pieces), pieces)
    }
}

fn run(ns: u64) -> Act {
    Act::Run(ns, WORK)
}

fn robbed(ns: u64) -> Act {
    Act::Robbed(ns, WORK)
}

/// Check that a spinner is on-CPU all the time: late counters never show as blocked or stolen.
#[test]
fn spinner() {
    let model = Model::new(&[run(1003 * MS)]);
    for view in VIEWS {
        let (by, _) = model.play(view);
        assert_eq!(sum(&by, ThreadState::OnCpu), 1003 * MS, "{view:?}");
        assert_eq!(by.len(), 1, "{view:?} {by:?}");
    }
}

/// Check that a spinner that the hypervisor robs of a fifth of its time shows it as stolen.
#[test]
fn stolen_time() {
    let first = Model::new(&[run(2000 * MS)]);
    let mut ledger = Ledger::new(first.at(0, View::Whole));
    let mut pieces = Vec::new();
    for i in 1..=100 {
        let mut now = first.at(i * 20 * MS, View::Whole);
        now.run_ns = now.run_ns / 5 * 4;
        let hit = TimerHit {
            time: now.time - 1,
            place: 1,
            state: ThreadState::OnCpu,
        };
        ledger.observe(now, &[hit], &mut pieces);
    }
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    let steal = sum(&by, ThreadState::StealIrq);
    assert!((380 * MS..=400 * MS).contains(&steal), "{steal}");
    assert_eq!(sum(&by, ThreadState::Blocked), 0);
}

/// Check that a thread starved for 300 ms shows it as runnable in the time in which it waited,
/// although the kernel counts the delay only when it is over.
#[test]
fn starved() {
    for view in VIEWS {
        let acts = [run(100 * MS), Act::Wait(300 * MS), run(100 * MS)];
        let (by, pieces) = Model::new(&acts).play(view);
        let runnable = sum(&by, ThreadState::Runnable);
        assert!((288 * MS..=300 * MS).contains(&runnable), "{view:?} {by:?}");
        assert_eq!(sum(&by, ThreadState::Blocked), 0);
        let early: u64 = pieces
            .iter()
            .filter(|p| p.state == ThreadState::Runnable)
            .map(|p| part_until(p, 250 * MS))
            .sum();
        // Pieces may begin a tick before the wait.
        assert!((125 * MS..=156 * MS).contains(&early), "{view:?} {early}");
    }
}

/// What lies before `time` of a piece whose weight lies evenly in it.
fn part_until(piece: &Piece<u32>, time: u64) -> u64 {
    let inside = time.clamp(piece.start, piece.end) - piece.start;
    (u128::from(piece.weight) * u128::from(inside) / u128::from(piece.end - piece.start)) as u64
}

/// Check that starvation which does not end shows after a second where running and queued look alike, and
/// that it is counted once when it ends after all.
#[test]
fn starved_for_seconds() {
    let acts = [run(100 * MS), Act::Wait(3000 * MS), run(500 * MS)];
    let (by, pieces) = Model::new(&acts).play(View::Blurred);
    let runnable = sum(&by, ThreadState::Runnable);
    assert!((2988 * MS..=3000 * MS).contains(&runnable), "{by:?}");
    let shown: u64 = pieces
        .iter()
        .filter(|p| p.state == ThreadState::Runnable && p.end <= 1200 * MS)
        .map(|p| p.weight)
        .sum();
    assert!(shown >= 1000 * MS, "{shown}");
}

/// Check that what the hypervisor takes of a spinner is not shown as waiting for a CPU, nor the other way
/// round, and that late ticks change nothing.
#[test]
fn robbed_and_queued() {
    let mut acts = Vec::new();
    for i in 0..50 {
        acts.push(run(57 * MS));
        acts.push(robbed((10 + i) * MS));
        acts.push(run(9 * MS));
        acts.push(Act::Wait((5 + i) * MS));
    }
    // What a recording ends in can not be told.
    acts.push(run(200 * MS));
    let (robbed, queued) = ((10..60).sum::<u64>() * MS, (5..55).sum::<u64>() * MS);
    let model = Model::new(&acts);
    for view in [View::Whole, View::Blurred] {
        let mut state = 7_u64;
        let mut late = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if state >> 61 == 0 {
                (state >> 33) % (60 * MS)
            } else {
                0
            }
        };
        for late in [&mut (|| 0_u64) as &mut dyn FnMut() -> u64, &mut late] {
            let (by, _) = model.play_late(view, late);
            let runnable = sum(&by, ThreadState::Runnable);
            assert!(
                runnable.abs_diff(queued) <= 12 * MS,
                "{view:?} {by:?} {queued}"
            );
            let steal = sum(&by, ThreadState::StealIrq);
            assert!(
                steal.abs_diff(robbed) <= 24 * MS,
                "{view:?} {by:?} {robbed}"
            );
        }
    }
}

/// Check that a blocked thread's time goes to the wait it was seen in.
#[test]
fn long_waits() {
    let acts = [Act::Block(500 * MS, 1), run(MS), Act::Block(300 * MS, 2)];
    let (by, _) = Model::new(&acts).play(View::Whole);
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
        acts.push(run(400_000));
        acts.push(Act::Block(6_300_000, 1));
        acts.push(run(100_000));
        acts.push(Act::Block(500_000, 2));
    }
    let (by, _) = Model::new(&acts).play(View::Whole);
    let total = 2000 * 7_300_000;
    assert_eq!(by.values().sum::<u64>(), total);
    assert_eq!(sum(&by, ThreadState::OnCpu), 2000 * 500_000);
    let share = by[&(ThreadState::Blocked, Some(2))] as f64 / total as f64;
    assert!((share - 500_000.0 / 7_300_000.0).abs() < 0.015, "{share}");
}

/// Check that waits of two lengths, both shorter than a tick, get the shares of their time, neither the long
/// ones nor the short ones more: 300 threads for a second, each from another moment of its period.
#[test]
fn waits_of_two_lengths() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut jitter = |mean: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        mean / 2 + random % mean
    };
    for view in VIEWS {
        let (mut truth, mut got) = ([0; 2], [0; 2]);
        for thread in 0..300 {
            let mut acts = vec![run(1 + thread * 7_919_113 % (10 * MS))];
            for _ in 0..140 {
                for (place, mean) in [5_110_000, 2_190_000].into_iter().enumerate() {
                    let wait = jitter(mean);
                    truth[place] += wait;
                    acts.extend([Act::Block(wait, place as u32), run(20_000)]);
                }
            }
            let (by, _) = Model::new(&acts).play(view);
            for (place, sum) in got.iter_mut().enumerate() {
                *sum += by[&(ThreadState::Blocked, Some(place as u32))];
            }
        }
        let share = |of: [u64; 2]| of[0] as f64 / (of[0] + of[1]) as f64;
        // Four standard deviations of 30 000 samples.
        assert!(
            (share(got) - share(truth)).abs() < 0.0106,
            "{view:?} {got:?} {truth:?}"
        );
    }
}

/// A thread seen in a wait at place 7, which never ran.
fn blocked(time: u64, switches: u64) -> Observation<u32> {
    Observation {
        time,
        sched: Sched::Blocked,
        stopped: false,
        dumps: false,
        switches,
        voluntary: Some(switches),
        run_ns: 0,
        delay_ns: 0,
        guest_ns: 0,
        place: Some(7),
        n_ticks: 1,
    }
}

/// Check that a thread which is stopped for a while, and runs before and after, is stopped in no other time: what is not
/// explained later is stolen, or in the wait that it was seen in before.
#[test]
fn stopped_for_a_while() {
    for waited_before in [false, true] {
        for voluntary in [Some(0), None] {
            let seen = |i: u64, sched, run| Observation {
                voluntary,
                sched,
                run_ns: run * MS,
                stopped: (100..200).contains(&i),
                place: Some(if i < 100 { 1 } else { 9 }).filter(|_| sched == Sched::Blocked),
                ..blocked(i * 10 * MS, i)
            };
            let mut pieces = Vec::new();
            let mut ledger = Ledger::new(seen(0, Sched::Blocked, 0));
            if !waited_before {
                ledger = Ledger::new(seen(0, Sched::Running, 0));
            }
            for i in 1..100 {
                ledger.observe(seen(i, Sched::Running, i * 10), &[], &mut pieces);
            }
            for i in 100..200 {
                let same = Observation {
                    switches: 100,
                    ..seen(i, Sched::Blocked, 990)
                };
                ledger.observe(same, &[], &mut pieces);
            }
            // A tenth of the time is explained by nothing.
            for i in 200..300 {
                ledger.observe(
                    seen(i, Sched::Running, 990 + (i - 200) * 9),
                    &[],
                    &mut pieces,
                );
            }
            ledger.finish(&mut pieces);
            let by = weights(&pieces);
            let stopped = by[&(ThreadState::Blocked, Some(9))];
            assert!((990 * MS..=1020 * MS).contains(&stopped), "{by:?}");
            let late = pieces.iter().filter(|piece| piece.place == Some(9));
            let last = late.map(|piece| piece.end).max();
            assert!(last <= Some(2020 * MS), "{last:?}");
            assert_eq!(by.values().sum::<u64>(), 2990 * MS, "{by:?}");
        }
    }
}

/// Check that a thread which writes a core dump, and so runs and is switched, is stopped in all of that, whose run time and
/// samples are none of the program's; and that the run time is no other thread's either.
#[test]
fn dumps() {
    let seen = |i: u64, run, dumps: bool| Observation {
        stopped: dumps,
        dumps,
        sched: if dumps {
            Sched::Blocked
        } else {
            Sched::Running
        },
        run_ns: run * MS,
        delay_ns: i * MS,
        place: dumps.then_some(9),
        ..blocked(i * 10 * MS, i)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(seen(0, 0, false));
    for i in 1..=100 {
        ledger.observe(seen(i, i * 9, false), &[], &mut pieces);
    }
    for i in 101..=200 {
        let hit = TimerHit {
            time: i * 10 * MS - 1,
            place: 5,
            state: ThreadState::OnCpu,
        };
        ledger.observe(seen(i, 900 + (i - 100) * 8, true), &[hit], &mut pieces);
    }
    assert_eq!(ledger.run_ns(), 1700 * MS);
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    let stopped = by[&(ThreadState::Blocked, Some(9))];
    assert!((990 * MS..=1010 * MS).contains(&stopped), "{by:?}");
    let on_cpu = by
        .iter()
        .filter(|((state, _), _)| *state == ThreadState::OnCpu);
    assert!(on_cpu.map(|(_, ns)| ns).sum::<u64>() <= 910 * MS, "{by:?}");
    assert_eq!(by.values().sum::<u64>(), 2000 * MS, "{by:?}");
}

/// Check that a sleeper that is stopped without being woken is divided at the tick, half and half.
#[test]
fn stopped_asleep() {
    let seen = |time, stopped| Observation {
        stopped,
        place: Some(if stopped { 9 } else { 7 }),
        ..blocked(time, 5)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(seen(0, false));
    ledger.observe(seen(1000, false), &[], &mut pieces);
    ledger.observe(seen(1100, true), &[], &mut pieces);
    ledger.observe(seen(2000, true), &[], &mut pieces);
    ledger.observe(seen(2100, false), &[], &mut pieces);
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    assert_eq!(by[&(ThreadState::Blocked, Some(9))], 1000);
    assert_eq!(by[&(ThreadState::Blocked, Some(7))], 1100);
}

/// Check that a thread that ran but was never sampled keeps its exact run time, without a place.
#[test]
fn never_sampled() {
    let seen = |time, run_ns, switches| Observation {
        run_ns,
        ..blocked(time, switches)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(seen(0, 0, 0));
    for i in 1..=10 {
        ledger.observe(seen(i * TICK, i * 1000, i), &[], &mut pieces);
    }
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    assert_eq!(by[&(ThreadState::OnCpu, None)], 10_000);
    assert_eq!(by.values().sum::<u64>(), 10 * TICK);
}

/// Check that a torn stack gives its time to the next one that is whole, not to none.
#[test]
fn torn_stack() {
    let seen = |time, switches, place| Observation {
        place,
        ..blocked(time, switches)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(seen(0, 0, None));
    ledger.observe(seen(100, 1, None), &[], &mut pieces);
    ledger.observe(seen(200, 2, Some(5)), &[], &mut pieces);
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    assert_eq!(by, BTreeMap::from([((ThreadState::Blocked, Some(5)), 200)]));
}

/// Check that a delay longer than the time since a thread was seen asleep, which is the sleep that Linux 6.12 counts in
/// at times, does not make its later waits runnable.
#[test]
fn sleep_in_delay() {
    let seen = |i, switches, delay_ns| Observation {
        delay_ns,
        ..blocked(i * TICK, switches)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(seen(0, 0, 0));
    for i in 1..=100 {
        ledger.observe(seen(i, 0, 0), &[], &mut pieces);
    }
    for i in 101..=200 {
        ledger.observe(seen(i, i - 100, 90 * TICK), &[], &mut pieces);
    }
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    assert_eq!(by.values().sum::<u64>(), 200 * TICK);
    let runnable = sum(&by, ThreadState::Runnable);
    assert!(runnable <= TICK, "{runnable}");
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (1..60 * MS).prop_map(run),
        (1..60 * MS).prop_map(Act::Wait),
        (1..60 * MS, 1..4_u32).prop_map(|(ns, p)| Act::Block(ns, p)),
        (1..60 * MS).prop_map(robbed),
    ]
}

proptest! {
    /// Check on random threads and ticks that the weights add up to the observed time, that no piece weighs
    /// more than its interval, and that run time is exact to a scheduler tick.
    #[test]
    fn adds_up(
        acts in prop::collection::vec(act(), 1..60),
        view in prop::sample::select(&VIEWS[..]),
        delays in prop::collection::vec(prop_oneof![4 => Just(0), 1 => 0..80 * MS], 1..20),
    ) {
        let model = Model::new(&acts);
        let mut delays = delays.iter().cycle();
        let mut late = || delays.next().copied().unwrap_or(0);
        let (by, pieces) = model.play_late(view, &mut late);
        prop_assert_eq!(by.values().sum::<u64>(), model.end);
        for p in &pieces {
            prop_assert!(p.weight <= p.end - p.start, "{:?}", p);
        }
        let ran: u64 = acts.iter().map(|a| if let Act::Run(ns, _) = a { *ns } else { 0 }).sum();
        let shown = sum(&by, ThreadState::OnCpu);
        prop_assert!(shown.abs_diff(ran) <= 12 * MS, "{} {}", shown, ran);
    }
}

/// Check that run time which the kernel counts for a guest, in whole scheduler ticks, is the guest's, and the rest is not,
/// whichever is counted first.
#[test]
fn guest_time() {
    let seen = |i: u64, run_ns| Observation {
        sched: Sched::Running,
        run_ns,
        // Three quarters, rounded up or down to 4 ms.
        guest_ns: (run_ns * 3 / 4 + (i % 2) * 4 * MS).next_multiple_of(4 * MS),
        ..blocked(i * TICK, 0)
    };
    let mut pieces = Vec::new();
    let mut ledger = Ledger::new(Observation {
        guest_ns: 0,
        ..seen(0, 0)
    });
    for i in 1..=300 {
        ledger.observe(seen(i, i * TICK), &[], &mut pieces);
    }
    ledger.finish(&mut pieces);
    let by = weights(&pieces);
    let guest = by[&(ThreadState::Guest, None)];
    assert!(guest.abs_diff(225 * TICK) <= 12 * MS, "{guest}");
    assert_eq!(guest + by[&(ThreadState::OnCpu, None)], 300 * TICK);
}
