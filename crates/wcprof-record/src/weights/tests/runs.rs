//! Threads that run, as the fixtures of the live tests do.

use wcprof_types::ThreadState::{OnCpu, Runnable, StealIrq};

use super::MS;
use super::check::{Program, SETTLE_NS, Setup};
use super::machine::{Around, Machine, Random, Step};
use super::model::{SCHEDULER_TICK, VIEWS, WORK, Weights};
use super::play::{play, sum, timer_period_ns, weights};

/// Two places to run in.
const A: u32 = 0;
const B: u32 = 1;

/// Does these steps again and again.
fn in_turn(mut round: impl FnMut(u64, &mut Random) -> Vec<Step> + 'static) -> Program {
    let mut steps = Vec::new();
    Box::new(move |now, random| {
        if steps.is_empty() {
            steps = round(now, random);
            steps.reverse();
        }
        steps.pop().expect("a round has steps")
    })
}

/// Check the share of CPU time of two functions that read the thread's CPU clock, which settles the
/// kernel's count, in threads that share CPUs.
#[test]
fn cpu_split() {
    let setup = Setup {
        rate: 997,
        n_threads: 8,
        rivals: 1,
        seconds: 5,
    };
    let all = setup.record(|_, _| {
        in_turn(|_, random| {
            let unit = random.jitter(145_000);
            let part = |n, place| (0..n).flat_map(move |_| [Step::Run(unit, place), Step::Clock]);
            part(7, A).chain(part(3, B)).collect()
        })
    });
    for outcome in all {
        outcome.assert_states();
        outcome.assert_share(OnCpu, A, 0.0);
        // It never sleeps: what is stolen is known.
        outcome.assert_open("stolen", outcome.sums(StealIrq));
    }
}

/// Check that run time goes to the samples of its own interval, to each its part: all threads go from A to
/// B once. The ticks may be as frequent as the samples, more than those of the scheduler, or a few may be missed.
#[test]
fn one_change() {
    const N: u64 = 400;
    for (rate, timer_rate) in [(99, 99), (997, 997), (12, 99)] {
        let period = timer_period_ns(timer_rate);
        for (around, view) in [Around::Calm, Around::Busy]
            .iter()
            .flat_map(|&a| VIEWS.map(|v| (a, v)))
        {
            let machine = Machine::new(around, 400 * MS);
            let mut off = 0;
            for thread in 0..N {
                let mut random = Random::new(thread);
                let ticks = machine.ticks(rate, &mut random);
                let change = 100 * MS + random.below(200 * MS);
                let mut program = |now, _: &mut Random| match now < change {
                    true => Step::Run(change - now, A),
                    false => Step::Run(MS, B),
                };
                let model = machine.thread(0, &mut random, &mut program);
                let timer = (period, random.below(period));
                let got = weights(&play(&model, view, &ticks, timer));
                let truth = model.truth(ticks[0], ticks[ticks.len() - 1]);
                let of_a = |by: &Weights| by.get(&(OnCpu, Some(A))).copied().unwrap_or(0) as i64;
                off += of_a(&got) - of_a(&truth);
            }
            // Where between two samples each change lies is not known; and run time goes to the samples
            // of the interval in which it settles: on average later by half a scheduler tick, or half an
            // interval where these are shorter and samples wait for their run time.
            let sigma = period as f64 * (N as f64 / 12.0).sqrt();
            let late = (N * SCHEDULER_TICK.min(1_000_000_000 / rate) / 2) as f64;
            let off = off as f64;
            assert!(
                (-late - 4.0 * sigma..=4.0 * sigma).contains(&off),
                "{rate} Hz, {around:?} {view:?}: {off} ns, late {late}, sigma {sigma}"
            );
        }
    }
}

/// Check that what is stolen of a thread which has slept and runs since is not taken for sleep.
#[test]
fn sleeper_that_runs() {
    let setup = Setup {
        rate: 99,
        n_threads: 20,
        rivals: 0,
        seconds: 8,
    };
    let all = setup.record(|_, _| {
        Box::new(|now, _| match now < 300 * MS {
            true => Step::Until(300 * MS, B),
            false => Step::Run(MS, A),
        })
    });
    for outcome in all {
        outcome.assert_states();
        outcome.assert_open("stolen", outcome.sums(StealIrq));
    }
}

/// Check that a thread which is busy a tenth of the time has exactly its run time, in the place that it
/// was busy in.
#[test]
fn busy_a_tenth() {
    for rate in [99, 997] {
        let setup = Setup {
            rate,
            n_threads: 8,
            rivals: 0,
            seconds: 5,
        };
        let all = setup.record(|_, _| {
            let mut next = 0;
            in_turn(move |_, random| {
                let period = random.jitter(7_300_000);
                next += period;
                // On the way into the sleep and out of it is little.
                vec![
                    Step::Run(20_000, WORK),
                    Step::Run(period / 10, A),
                    Step::Clock,
                    Step::Run(20_000, WORK),
                    Step::Until(next, B),
                ]
            })
        });
        for outcome in all {
            outcome.assert_states();
            outcome.assert_share(OnCpu, A, 0.0);
        }
    }
}

/// Reactors that poll in vain for 1000 units, ask each of their bdevs for 50 and work on it for 500.
fn reactors(n_bdevs: u64) {
    let setup = Setup {
        rate: 99,
        n_threads: 20,
        rivals: 1,
        seconds: 8,
    };
    let all = setup.record(|_, _| {
        in_turn(move |_, random| {
            let mut run = |units: u64, place| Step::Run(random.jitter(units * 200), place);
            vec![run(1000, WORK), run(50 * n_bdevs, B), run(500 * n_bdevs, A)]
        })
    });
    for outcome in all {
        outcome.assert_states();
        outcome.assert_share(OnCpu, A, 0.0);
        outcome.assert_open("stolen", outcome.sums(StealIrq));
    }
}

/// Check the share of work of a reactor that has all bdevs.
#[test]
fn reactor_with_all() {
    reactors(8);
}

/// Check the same of one that has its part of them.
#[test]
fn reactor_with_some() {
    reactors(2);
}

/// Check that a busy thread which is kept off its CPU for 300 ms is runnable just then, and elsewhere no
/// longer than it was.
#[test]
fn starved() {
    const BEGIN: u64 = 1300 * MS;
    for (around, view) in Around::ALL.iter().flat_map(|&a| VIEWS.map(|v| (a, v))) {
        let machine = Machine::new(around, 4000 * MS);
        for thread in 0..20 {
            let mut random = Random::new(thread);
            let ticks = machine.ticks([99, 997][thread as usize % 2], &mut random);
            let mut has_starved = false;
            let mut program = |now, _: &mut Random| match has_starved || now < BEGIN {
                true => Step::Run(MS, WORK),
                false => {
                    has_starved = true;
                    Step::Starve(300 * MS)
                }
            };
            let model = machine.thread(0, &mut random, &mut program);
            let timer = (timer_period_ns(99), 0);
            let pieces = play(&model, view, &ticks, timer);

            let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
            let truth = |from, to| sum(&model.truth(from, to), Runnable);
            // What the last moments were is not known.
            let window = (BEGIN, BEGIN + 300 * MS);
            let runnable = pieces.iter().filter(|p| p.state == Runnable);
            let (mut all, mut inside) = (0, 0);
            for p in runnable {
                all += p.weight;
                let overlap = p.end.min(window.1).saturating_sub(p.start.max(window.0));
                inside += p.weight.min(overlap);
            }
            let open = SETTLE_NS + model.unsettled(first) + model.unsettled(last);
            let what = format!("{around:?} {view:?} {thread}: {inside} of {all} ns");
            assert!(all.abs_diff(truth(first, last)) <= open, "{what}");
            let least = truth(window.0, window.1);
            assert!(least > 280 * MS, "{what}");
            assert!(inside + SETTLE_NS >= least, "{what} {least}");
        }
    }
}
