//! Comparisons of simulated recordings: the same load twice, and known changes.

use crate::support;

use std::sync::LazyLock;

use support::Maker;
use support::random::{Independent, Process, Random, Turns, Wander};
use wcprof_profile::diff::{
    DiffOptions, Line, LineName, ProfileDiff, TableKind, Unit, Warning, diff,
};
use wcprof_profile::model::Profile;
use wcprof_profile::{ProfileBuilder, Rules, View};
use wcprof_trace::model::{Span, ThreadId};
use wcprof_types::{BuildId, StackEnd, ThreadState, TimeNs};

const TICK_NS: u64 = 10_000_000;

/// A worker of a pool: each of its functions gets the share of the time that its process gives, as
/// far as there is time left.
struct Worker {
    pool: &'static str,
    functions: Vec<(&'static str, Box<dyn Process>)>,
}

fn worker(pool: &'static str, functions: Vec<(&'static str, Box<dyn Process>)>) -> Worker {
    Worker { pool, functions }
}

fn independent(share: f64) -> Box<dyn Process> {
    Box::new(Independent(share))
}

/// A load with busy, rare, lasting and exactly measured work; `read` has this share of a thread.
fn load(read: f64) -> Vec<Worker> {
    let mut workers = vec![worker(
        "reader",
        vec![("read()", independent(read)), ("parse()", independent(0.2))],
    )];
    for _ in 0..4 {
        workers.push(worker(
            "worker-N",
            vec![
                ("encode()", Box::new(Turns::new(4.0, 12.0))),
                ("flush()", Box::new(Turns::new(20.0, 60.0))),
                ("rare()", independent(0.01)),
            ],
        ));
    }
    workers.push(worker(
        "spinner",
        vec![(
            "spin()",
            Box::new(Wander {
                mean: 0.6,
                deviation: 0.1,
                memory: 0.9,
                state: None,
            }),
        )],
    ));
    workers
}

/// Records the workers: on-CPU in their functions, else in `other_work`, 100 times a second.
fn record(seconds: u64, random: &mut Random, mut workers: Vec<Worker>) -> Profile {
    static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::builtin().unwrap());
    let mut m = Maker::new();
    m.tables.stats.duration = TimeNs(seconds * 1_000_000_000);
    let rest = m.stack(&["main", "other_work"], StackEnd::Root);
    let threads: Vec<ThreadId> = workers
        .iter()
        .enumerate()
        .map(|(at, w)| m.thread(at as i32 + 1, w.pool))
        .collect();
    let stacks: Vec<Vec<_>> = workers
        .iter()
        .map(|w| {
            let functions = w.functions.iter();
            functions
                .map(|(name, _)| m.stack(&["main", "loop", name], StackEnd::Root))
                .collect()
        })
        .collect();
    let mut builder = ProfileBuilder::new();
    for tick in 0..seconds * 100 {
        for (at, worker) in workers.iter_mut().enumerate() {
            let mut left = TICK_NS;
            let mut add = |stack, weight: u64| {
                if weight > 0 {
                    builder.add_span(&Span {
                        thread: threads[at],
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
            for ((_, process), stack) in worker.functions.iter_mut().zip(&stacks[at]) {
                let share = process.next(random);
                let weight = ((share * TICK_NS as f64) as u64).min(left);
                left -= weight;
                add(*stack, weight);
            }
            add(rest, left);
        }
    }
    builder.finish(&m.tables, None, &RULES)
}

fn options() -> DiffOptions<'static> {
    DiffOptions {
        view: View {
            min_percent: 0.05,
            ..View::default()
        },
        ..DiffOptions::default()
    }
}

fn function<'d>(diff: &'d ProfileDiff, name: &str) -> &'d Line {
    let table = diff
        .tables
        .iter()
        .find(|t| t.kind == TableKind::FunctionTotal);
    let is = |line: &&Line| matches!(&line.name, LineName::Function { name: n } if n == name);
    table.unwrap().lines.iter().find(is).unwrap()
}

/// Pairs of recordings of the same load of which a comparison calls any line significant.
fn false_positives(seed: u64, pairs: usize, seconds: u64) -> (usize, usize) {
    let mut random = Random::new(seed);
    let mut n_tested = 0;
    let n = (0..pairs)
        .filter(|_| {
            let before = record(seconds, &mut random, load(0.3));
            let after = record(seconds, &mut random, load(0.3));
            let found = diff(&before, &after, &options());
            n_tested += found.n_tested();
            found.n_significant() > 0
        })
        .count();
    (n, n_tested / pairs)
}

/// Check that of pairs of recordings of loads that differ by chance no more lines are significant than are tested, also
/// where functions have one caller, so that lines are the same time.
#[test]
fn tested_lines() {
    let mut random = Random::new(7);
    let mut n_marked = 0;
    for _ in 0..100 {
        let part = |random: &mut Random| 0.1 + 0.8 * random.unit();
        let (one, other) = (part(&mut random), part(&mut random));
        let before = record(30, &mut random, load(one));
        let after = record(30, &mut random, load(other));
        let found = diff(&before, &after, &options());
        let lines = found.tables.iter().flat_map(|table| &table.lines);
        let n_intervals = lines.filter(|line| line.change.is_some()).count();
        assert_eq!(found.n_tested(), n_intervals);
        assert!(found.n_significant() <= n_intervals);
        n_marked += usize::from(found.n_significant() > 0);
    }
    assert!(
        n_marked > 10,
        "something changed in {n_marked} of 100 pairs"
    );
}

/// Check that of 300 pairs of recordings of the same load at most 5 % show any significant line,
/// in 60 s and in 10 s.
#[test]
fn steady_load() {
    for (seed, seconds) in [(1, 60), (2, 10)] {
        let (n, n_tested) = false_positives(seed, 300, seconds);
        eprintln!("{seconds} s: {n} of 300 pairs, {n_tested} tested lines each");
        assert!(n_tested > 10, "{n_tested}");
        assert!(n <= 15, "{seconds} s: {n} of 300");
    }
}

/// Check that a function that grew from 30 % to 35 % of a thread is significant in each of 40
/// pairs of a minute, that its interval holds 5 points in most, and that what did not change is
/// not significant.
#[test]
fn five_points() {
    let mut random = Random::new(3);
    let mut n_holds = 0;
    for pair in 0..40 {
        let before = record(60, &mut random, load(0.30));
        let after = record(60, &mut random, load(0.35));
        let found = diff(&before, &after, &options());
        let read = function(&found, "read()");
        assert!(read.is_significant(), "pair {pair}: {read:?}");
        let change = read.change.unwrap();
        n_holds += usize::from(change.low <= 5e7 && 5e7 <= change.high);
        assert!(change.low > 0.0);
        assert!(!function(&found, "encode()").is_significant());
    }
    assert!(n_holds >= 36, "{n_holds} of 40");
}

/// Threads of a pool, each with the same ten functions, of which `read` has this share.
fn pool(read: f64) -> Vec<Worker> {
    const FUNCTIONS: [&str; 9] = [
        "a()", "b()", "c()", "d()", "e()", "f()", "g()", "h()", "i()",
    ];
    let one = |_| {
        let others = FUNCTIONS.map(|name| (name, independent(0.05)));
        let functions = [("read()", independent(read))].into_iter().chain(others);
        worker("worker-N", functions.collect())
    };
    (0..31).map(one).collect()
}

/// The smallest growth of `read`, in points of a thread, that at least 80 of 100 pairs show.
fn smallest_found(seconds: u64, load: fn(f64) -> Vec<Worker>, step: f64) -> f64 {
    let mut random = Random::new(9);
    let is_found = |growth: f64| {
        let found = (0..100).filter(|_| {
            let before = record(seconds, &mut random, load(0.3));
            let after = record(seconds, &mut random, load(0.3 + growth));
            let found = diff(&before, &after, &options());
            function(&found, "read()").is_significant()
        });
        found.count() >= 80
    };
    let growths = (1..100).map(|n| f64::from(n) * step);
    100.0 * growths.take_while(is_not(is_found)).last().unwrap_or(0.0) + 100.0 * step
}

fn is_not(mut test: impl FnMut(f64) -> bool) -> impl FnMut(&f64) -> bool {
    move |growth| !test(*growth)
}

/// Check the smallest change that is found in four of five pairs.
#[test]
#[ignore = "long: with --full"]
fn power() {
    for (name, seconds, load, step, most) in [
        ("6 threads", 60, load as fn(f64) -> Vec<Worker>, 0.005, 5.0),
        ("31 threads", 10, pool, 0.001, 2.0),
    ] {
        let found = smallest_found(seconds, load, step);
        eprintln!("{name}, {seconds} s: {found:.1} points");
        assert!(found <= most, "{name}: {found}");
    }
}

/// Check that time per operation tells a higher load from a higher cost.
#[test]
fn per_operation() {
    let mut random = Random::new(4);
    let before = record(60, &mut random, load(0.2));
    let after = record(60, &mut random, load(0.4));
    let per_second = diff(&before, &after, &options());
    assert!(function(&per_second, "read()").is_significant());
    let per_op = DiffOptions {
        n_ops: Some([60_000.0, 120_000.0]),
        ..options()
    };
    let found = diff(&before, &after, &per_op);
    assert_eq!(found.unit, Unit::Operation);
    let read = function(&found, "read()");
    assert!(!read.is_significant(), "{read:?}");
    // 0.2 of a thread over 60 s and 60000 operations: 200 us each.
    assert!((read.values[0].per_unit - 200_000.0).abs() < 20_000.0);
    let spin = function(&found, "spin()");
    assert!(spin.is_significant() && spin.difference() < 0.0);
}

/// Check that a function that is new is found, that one with a handful of samples is not judged,
/// and that one below the limit is left out.
#[test]
fn new_and_rare() {
    let mut random = Random::new(5);
    let with = |share: f64, rare: f64| {
        vec![worker(
            "reader",
            vec![
                ("old()", independent(0.3)),
                ("new()", independent(share)),
                ("few()", independent(rare)),
            ],
        )]
    };
    let before = record(60, &mut random, with(0.0, 0.0015));
    let after = record(60, &mut random, with(0.05, 0.0015));
    let found = diff(&before, &after, &options());
    let new = function(&found, "new()");
    assert_eq!(new.values[0].weight_ns, 0);
    assert!(new.is_significant());
    assert_eq!(function(&found, "few()").change, None);
    let coarse = DiffOptions {
        view: View {
            min_percent: 1.0,
            ..View::default()
        },
        ..options()
    };
    let table = &diff(&before, &after, &coarse).tables[TableKind::FunctionTotal as usize];
    assert!(table.n_below >= 1, "{table:?}");
}

/// Check that threads that do the same all the time in both recordings do not change, although
/// their ends are not known to the tick.
#[test]
fn constant() {
    let mut random = Random::new(6);
    let make = || vec![worker("w", vec![("all()", independent(1.0))])];
    let before = record(30, &mut random, make());
    let mut after = record(30, &mut random, make());
    after.rows[0].weight -= TICK_NS;
    let found = diff(&before, &after, &options());
    assert_eq!(found.n_significant(), 0);
}

/// Check the warnings: other programs, other builds (whose functions without a name are one),
/// other engines, a recording that was cut, one that is too short, filters that leave nothing, and one
/// without an axis of time.
#[test]
fn warnings() {
    let mut random = Random::new(7);
    let before = record(10, &mut random, load(0.3));
    let same = diff(&before, &before, &options());
    assert!(same.warnings.is_empty(), "{:?}", same.warnings);

    let mut after = before.clone();
    after.processes[0].comm = "qemu-kvm".into();
    after.header.engine = "procfs".into();
    after.stats.complete = false;
    let found = diff(&before, &after, &options()).warnings;
    assert!(matches!(&found[0], Warning::Programs { before, after }
        if before == &["ceph-osd"] && after == &["qemu-kvm"]));
    assert!(matches!(&found[1], Warning::Engines(_)));
    assert_eq!(found[2], Warning::Cut([false, true]));

    let build = |profile: &Profile, id: u8, offset: &str| {
        let mut profile = profile.clone();
        profile.modules[0].build_id = BuildId::new(&[id; 20]);
        let module = profile.modules[0].name.clone();
        let function = profile
            .functions
            .iter_mut()
            .find(|f| f.name == "read()")
            .unwrap();
        (function.name, function.module) = (format!("{module}+{offset}"), module);
        function.resolved = false;
        profile
    };
    let (a, b) = (build(&before, 1, "0x10"), build(&before, 2, "0x30"));
    let found = diff(&a, &b, &options());
    assert!(matches!(&found.warnings[0], Warning::Rebuilt { modules, .. } if modules.len() == 1));
    let unnamed = format!("{}+?", a.modules[0].name);
    let [x, y] = function(&found, &unnamed).values;
    assert!(x.weight_ns > 0 && x.weight_ns == y.weight_ns);

    let short = record(0, &mut random, load(0.3));
    let found = diff(&before, &short, &options());
    assert!(found.warnings.contains(&Warning::TooShort([false, true])));
    assert!(found.warnings.contains(&Warning::Nothing([false, true])));
    assert_eq!(found.n_tested(), 0);

    let mut imported = before.clone();
    imported.header.rate_hz = 0;
    let found = diff(&before, &imported, &options());
    assert_eq!(found.warnings, [Warning::NoTime([false, true])]);
    assert_eq!(found.n_tested(), 0);
}

/// Check that a pool is matched although one recording has one of its threads alone, and that
/// processes are counted by class.
#[test]
fn matching() {
    let mut random = Random::new(8);
    let of = |pools: &[&'static str], random: &mut Random| {
        let workers = pools
            .iter()
            .map(|pool| worker(pool, vec![("f()", independent(0.5))]));
        record(10, random, workers.collect())
    };
    let before = of(&["w-0"], &mut random);
    let after = of(&["w-0", "w-1"], &mut random);
    let found = diff(&before, &after, &options());
    let pools = &found.tables[TableKind::Pool as usize].lines;
    assert!(
        pools
            .iter()
            .all(|l| l.values.iter().all(|v| v.weight_ns > 0)),
        "{pools:?}"
    );
    let class = &found.tables[TableKind::Class as usize].lines;
    assert_eq!(class.len(), 1);
    assert_eq!(
        class[0].name,
        LineName::Class {
            name: "osd".into(),
            n_processes: [1, 1]
        }
    );
    assert!((class[0].difference() - 1e9).abs() < 1e-3, "{:?}", class[0]);
}

/// Check that a long stack which many threads share is compared at the cost of its length: each function of each thread
/// compared with all others of the stack would take 10^11 steps. Recursion counts once.
#[test]
fn long_stack() {
    let names: Vec<String> = (0..10_000).map(|i| format!("f{i}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.push("f0");
    let mut m = Maker::new();
    let stack = m.stack(&names, StackEnd::Root);
    for at in 0..2_000 {
        let thread = m.thread(200 + at, "a");
        m.span(thread, ThreadState::OnCpu, None, Some(stack), 1_000_000);
    }
    let profile = m.profile();
    let found = diff(&profile, &profile, &DiffOptions::default());
    for name in ["f0", "f1"] {
        assert_eq!(function(&found, name).values[0].weight_ns, 2_000_000_000);
    }
}
