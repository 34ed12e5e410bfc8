//! Threads that sleep and wait, as the fixtures of the live tests do.

use wcprof_types::ThreadState::{Blocked, Runnable};

use super::MS;
use super::check::{Outcome, Program, Setup};
use super::machine::{Around, Random, Step};
use super::model::WORK;

/// Two places to wait in.
const A: u32 = 0;
const B: u32 = 1;

/// Runs for a moment, then does what `sleep` gives: until when, and where.
fn sleeper(mut sleep: impl FnMut(u64, &mut Random) -> (u64, u32) + 'static) -> Program {
    let mut awake = false;
    Box::new(move |now, random| {
        awake = !awake;
        if awake {
            return Step::Run(15_000, WORK);
        }
        let (until, place) = sleep(now, random);
        Step::Until(until, place)
    })
}

/// Checks times of states and the share of A. On a machine that stands still and wakes the sampler last, a
/// thread is found in the wait after the one that it was in: half of the time goes there.
fn check(all: &[Outcome], bias: impl Fn(&Outcome) -> f64) {
    for outcome in all {
        outcome.assert_states();
        let late = match outcome.around {
            Around::Late => outcome.paused / 2.0 / outcome.observed(),
            _ => 0.0,
        };
        outcome.assert_share(Blocked, A, bias(outcome) + late);
    }
}

/// What is known of waits that are not much shorter than a tick, where threads queue: one that is found
/// queued was in a wait that nobody has seen, and the time goes to the one seen before.
fn unseen(outcome: &Outcome) -> f64 {
    match outcome.around {
        Around::Busy => outcome.sums(Runnable).1 as f64 / outcome.observed() / 2.0,
        _ => 0.0,
    }
}

/// Check the share of sleeps in one of two places at random. As those that came too late are made up for,
/// nothing favors a place, whatever the machine does.
#[test]
fn sleep_split() {
    let setup = Setup {
        rate: 99,
        n_threads: 100,
        rivals: 0,
        seconds: 8,
    };
    let all = setup.record(|_, _| {
        let mut next = 0;
        sleeper(move |_, random| {
            next += random.jitter(3_650_000);
            (next, if random.below(10) < 7 { A } else { B })
        })
    });
    for outcome in all {
        outcome.assert_states();
        outcome.assert_share(Blocked, A, 0.0);
    }
}

/// As many sleeps of one length as of another, in any order.
fn two_lengths(rate: u64, n_threads: u64, seconds: u64) {
    let setup = Setup {
        rate,
        n_threads,
        rivals: 0,
        seconds,
    };
    let all = setup.record(|_, _| {
        sleeper(move |now, random| match random.below(2) {
            0 => (now + random.jitter(5_110_000), A),
            _ => (now + random.jitter(2_190_000), B),
        })
    });
    check(&all, |_| 0.0);
}

/// Check that neither long nor short sleeps get more than their share.
#[test]
fn two_lengths_at_99_hz() {
    two_lengths(99, 80, 8);
}

/// Check the same where most sleeps are seen, and where threads queue for several ticks.
#[test]
fn two_lengths_at_997_hz() {
    two_lengths(997, 10, 5);
}

/// Check that a wait which ends between two ticks gets its half of the interval: all threads go from A to B
/// once, so that what B got of A's time would show.
#[test]
fn one_change() {
    let setup = Setup {
        rate: 99,
        n_threads: 400,
        rivals: 0,
        seconds: 1,
    };
    let all = setup.record(|_, _| {
        let mut place = B;
        sleeper(move |now, random| {
            place += 1;
            match place % 2 {
                0 => (now + random.jitter(600 * MS), A),
                _ => (now + 2000 * MS, B),
            }
        })
    });
    for outcome in all {
        outcome.assert_states();
        // Where in its interval each change lies is all that is not known: 400 of a width of a tick.
        let of_a = outcome.weights_of(Blocked, A);
        let sigma = 1e9 / 99.0 * (400.0_f64 / 12.0).sqrt();
        assert!(
            (of_a.0 - of_a.1).abs() <= 4.0 * sigma,
            "{:?}: {of_a:?}, allowed {}",
            outcome.around,
            4.0 * sigma
        );
    }
}

/// Check the share of waiting for a mutex that another thread holds half of the time, 17 ms each, beside
/// sleeps of 3 ms.
#[test]
fn lock() {
    let setup = Setup {
        rate: 99,
        n_threads: 50,
        rivals: 0,
        seconds: 8,
    };
    let all = setup.record(|machine, thread| {
        let mut holds = false;
        let mut hold = sleeper(move |now, random| {
            holds = !holds;
            (now + random.jitter(17 * MS), u32::from(holds))
        });
        let holder = machine.thread(0, &mut Random::new(1000 + thread), &mut hold);
        let mut wants = false;
        sleeper(move |now, random| {
            wants = !wants;
            match wants {
                true => (holder.blocked_until(now, 1).unwrap_or(now), A),
                false => (now + random.jitter(3 * MS), B),
            }
        })
    });
    check(&all, unseen);
}

/// A thread that writes a file out again and again, and waits for room now and then.
fn disk(sync: u64, n_threads: u64, seconds: u64) -> Vec<Outcome> {
    let setup = Setup {
        rate: 99,
        n_threads,
        rivals: 0,
        seconds,
    };
    setup.record(|_, _| {
        let mut syncs = false;
        sleeper(move |now, random| {
            syncs = !syncs;
            match syncs {
                true => (now + random.jitter(sync), A),
                false if random.below(20) == 0 => (now + random.jitter(5 * sync), B),
                false => (now, B),
            }
        })
    })
}

/// Check the share of waiting for a disk whose writes take as long as a tick.
#[test]
fn slow_disk() {
    check(&disk(8 * MS, 50, 8), unseen);
}

/// Check the same for a disk that is so fast that the thread runs and queues as long as it waits.
#[test]
fn fast_disk() {
    check(&disk(80_000, 6, 4), |_| 0.0);
}
