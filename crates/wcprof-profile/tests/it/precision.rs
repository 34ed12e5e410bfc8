//! Confidence intervals against simulated processes whose long-run shares are known.

use crate::support;

use std::sync::LazyLock;

use support::Maker;
use support::random::{Independent, Process, Random, Turns, Wander};
use wcprof_profile::model::Profile;
use wcprof_profile::{GroupBy, ProfileBuilder, Rules, Trees, View};
use wcprof_trace::model::{Span, StackId, ThreadId};
use wcprof_types::{StackEnd, ThreadState, TimeNs};

/// 100 Hz.
const TICK_NS: u64 = 10_000_000;
/// 60 s.
const N_TICKS: u64 = 6000;
const N_RECORDINGS: usize = 700;

/// A recording of threads that are in `work` for the shares that their processes give, else in
/// `rest`.
fn record(n_ticks: u64, random: &mut Random, threads: &mut [Box<dyn Process>]) -> Profile {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());
    let mut m = Maker::new();
    m.tables.stats.duration = TimeNs(n_ticks * TICK_NS);
    let work = m.stack(&["main", "work"], StackEnd::Root);
    let rest = m.stack(&["main", "rest"], StackEnd::Root);
    let ids: Vec<ThreadId> = (0..threads.len() as i32)
        .map(|t| m.thread(t + 1, "w"))
        .collect();
    let mut builder = ProfileBuilder::new();
    for tick in 0..n_ticks {
        for (thread, process) in ids.iter().zip(threads.iter_mut()) {
            let busy = (process.next(random) * TICK_NS as f64) as u64;
            let mut add = |stack: StackId, weight: u64| {
                if weight > 0 {
                    builder.add_span(&Span {
                        thread: *thread,
                        start: TimeNs(tick * TICK_NS),
                        end: TimeNs((tick + 1) * TICK_NS),
                        weight,
                        n_samples: 1,
                        state: ThreadState::OnCpu,
                        wait: None,
                        stack: Some(stack),
                    });
                }
            };
            add(work, busy);
            add(rest, TICK_NS - busy);
        }
    }
    builder.finish(&m.tables, None, &RULES)
}

/// How many percent of the recordings in which `work` was seen have an interval that holds the
/// true share, and the mean width of the intervals in points.
fn coverage(
    seed: u64,
    n_ticks: u64,
    share: f64,
    make: impl Fn() -> Vec<Box<dyn Process>>,
) -> (f64, f64) {
    let mut random = Random::new(seed);
    let (mut n, mut n_holds, mut width) = (0, 0, 0.0);
    let view = View {
        by: GroupBy::All,
        ..View::default()
    };
    for _ in 0..N_RECORDINGS {
        let profile = record(n_ticks, &mut random, &mut make());
        let trees = Trees::new(&profile, &view);
        let group = &trees.groups[0];
        let work = group
            .nodes
            .iter()
            .find(|node| &*node.label.text(&profile, 0.0) == "work");
        let Some(work) = work else { continue };
        let interval = work.interval.unwrap();
        let truth = share * group.observed() as f64;
        n += 1;
        n_holds += usize::from(interval.low as f64 <= truth && truth <= interval.high as f64);
        width += (interval.high - interval.low) as f64 / group.observed() as f64;
        assert!(interval.low <= work.weight && work.weight <= interval.high);
    }
    let n = f64::from(n);
    (100.0 * n_holds as f64 / n, 100.0 * width / n)
}

fn one(process: impl Process + 'static) -> Vec<Box<dyn Process>> {
    vec![Box::new(process)]
}

/// Check that 93 to 97 of 100 intervals hold the truth, for samples that do not depend on each
/// other: common, nearly all, and rare ones.
#[test]
fn independent_samples() {
    for (seed, share) in [(1, 0.3), (2, 0.95), (3, 0.02), (4, 0.005)] {
        let (holds, _) = coverage(seed, N_TICKS, share, || one(Independent(share)));
        assert!((93.0..=97.0).contains(&holds), "share {share}: {holds} %");
    }
}

/// Check the same for waits that last from 3 ticks to a second, and for bursts.
#[test]
fn waits_over_many_ticks() {
    for (seed, inside, outside) in [
        (5, 3.0, 7.0),
        (6, 30.0, 60.0),
        (7, 100.0, 100.0),
        (8, 2.0, 100.0),
    ] {
        let share = Turns::new(inside, outside).share();
        let (holds, _) = coverage(seed, N_TICKS, share, || one(Turns::new(inside, outside)));
        assert!(
            (93.0..=97.0).contains(&holds),
            "{inside} of {outside}: {holds} %"
        );
    }
}

/// Check the same for exact run time that wanders, with a memory of 0.1 s and of 0.5 s.
#[test]
fn exact_run_time() {
    for (seed, memory) in [(9, 0.9), (10, 0.98)] {
        let wander = || Wander {
            mean: 0.4,
            deviation: 0.1,
            memory,
            state: None,
        };
        let (holds, _) = coverage(seed, N_TICKS, 0.4, || one(wander()));
        assert!((93.0..=97.0).contains(&holds), "memory {memory}: {holds} %");
    }
}

/// Check the same for a recording of the default length, with waits that are short against it.
#[test]
fn ten_seconds() {
    for (seed, inside, outside) in [(11, 1.0, 2.0), (12, 5.0, 10.0)] {
        let share = Turns::new(inside, outside).share();
        let (holds, _) = coverage(seed, 1000, share, || one(Turns::new(inside, outside)));
        assert!(
            (93.0..=97.0).contains(&holds),
            "{inside} of {outside}: {holds} %"
        );
    }
}

/// Check that the interval of independent samples has the width of a binomial one, and that four
/// threads make it half as wide.
#[test]
fn width() {
    let (_, one_thread) = coverage(13, N_TICKS, 0.3, || one(Independent(0.3)));
    let binomial = 100.0 * 2.0 * 1.96 * (0.3 * 0.7 / N_TICKS as f64).sqrt();
    assert!(
        (1.0..1.2).contains(&(one_thread / binomial)),
        "{one_thread} of {binomial}"
    );
    let four = || {
        (0..4)
            .map(|_| Box::new(Independent(0.3)) as Box<dyn Process>)
            .collect()
    };
    let (holds, four_threads) = coverage(14, N_TICKS, 0.3, four);
    assert!((93.0..=97.0).contains(&holds), "{holds} %");
    assert!((0.45..0.55).contains(&(four_threads / one_thread)));
}

/// Check that what does not vary is exact, and that a recording of a few ticks says nothing of its
/// precision.
#[test]
fn edges() {
    let mut random = Random::new(15);
    let mut whole = one(Independent(1.0));
    let profile = record(1000, &mut random, &mut whole);
    let trees = Trees::new(&profile, &View::default());
    for node in &trees.groups[0].nodes {
        let interval = node.interval.unwrap();
        assert_eq!((interval.low, interval.high), (node.weight, node.weight));
    }
    let mut half = one(Wander {
        mean: 0.5,
        deviation: 0.0,
        memory: 0.0,
        state: None,
    });
    let profile = record(1000, &mut random, &mut half);
    let trees = Trees::new(&profile, &View::default());
    let root = &trees.groups[0].nodes[0];
    assert_eq!(root.weight, 1000 * TICK_NS);
    for node in &trees.groups[0].nodes {
        let interval = node.interval.unwrap();
        assert!(
            interval.high - interval.low < node.weight / 10_000,
            "{interval:?}"
        );
    }
    let profile = record(12, &mut random, &mut one(Independent(0.5)));
    let trees = Trees::new(&profile, &View::default());
    assert!(trees.groups[0].nodes.iter().all(|n| n.interval.is_none()));
}
