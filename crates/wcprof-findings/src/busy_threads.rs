//! Rules on single threads: those that are busy all the time, and those that do most of their pool's work.

use wcprof_profile::model::{Pool, ProfileThread, Row};
use wcprof_profile::{Course, Estimator};
use wcprof_text::{count, percent};

use crate::applied::{AppliedRule, MIN_TICKS};
use crate::counted::{Counted, Sum};
use crate::evidence::tree;
use crate::finding::{Evidence, EvidenceLine, Finding, TimeShare};
use crate::rule::{Base, Kind, Scope};
use crate::totals::Totals;

/// Share of the recording that a single thread must be seen for, percent, before its load is
/// called lasting.
const MIN_OBSERVED_PERCENT: f64 = 50.0;

/// Threads that make a pool whose load can be uneven.
const MIN_LIKE_THREADS: usize = 2;

/// What one of the threads does of what the rule counts.
#[derive(Copy, Clone)]
struct Worker<'a> {
    at: usize,
    thread: &'a ProfileThread,
    rows: &'a [Counted<'a>],
    sum: Sum,
    /// Its own time, ns.
    base_ns: u64,
    /// Whether its samples are enough to judge it by.
    is_known: bool,
}

impl Worker<'_> {
    /// A share of its own time: threads that starve get less CPU time to work in.
    fn load(&self) -> f64 {
        self.sum.weight as f64 / self.base_ns.max(1) as f64
    }
}

/// A finding for each pool with such threads.
pub(crate) fn busy_threads(rule: &AppliedRule<'_>) -> Vec<Finding> {
    let profile = rule.profile();
    let threshold = &rule.rule.threshold;
    let mut rows_of = vec![Vec::new(); profile.threads.len()];
    let mut base_of = vec![0_u64; rows_of.len()];
    for row in &profile.rows {
        if threshold.of.includes(row.state) {
            base_of[row.thread] = base_of[row.thread].saturating_add(row.weight);
        }
        if let Some(anchor) = rule.compiled.test(profile, row) {
            rows_of[row.thread].push(Counted { row, anchor });
        }
    }
    let worker = |&at: &usize| {
        let thread = &profile.threads[at];
        let observed = percent(thread.observed_ns, rule.index.duration_ns);
        let sum = Sum::new(&rows_of[at]);
        let worker = Worker {
            at,
            thread,
            rows: &rows_of[at],
            sum,
            base_ns: base_of[at],
            is_known: sum.n_samples >= threshold.min_samples,
        };
        // Seen long enough to say something about its load.
        (thread.n_ticks >= MIN_TICKS && observed >= MIN_OBSERVED_PERCENT).then_some(worker)
    };
    let finding = |&at: &usize| {
        let pool = &profile.pools[at];
        let workers: Vec<Worker<'_>> = pool.threads.iter().filter_map(worker).collect();
        let (busy, factor) = match rule.rule.matches.kind {
            Kind::Imbalance => busier_than_others(rule, &workers)?,
            _ => saturated(rule, &workers)?,
        };
        let rows: Vec<Counted<'_>> = busy.iter().flat_map(|w| w.rows).copied().collect();
        let totals = Totals {
            wall_ns: observed_ns(&busy),
            ..rule.index.sum(&[at])
        };
        let share = TimeShare {
            tids: busy.iter().map(|w| w.thread.tid).collect(),
            ..rule.share(&rows, &totals, Base::Wall, Scope::Pool)
        };
        let of = format!("the wall-clock time of {}", count(busy.len(), "thread"));
        let mut evidence = vec![rule.thread_lines(&rows)];
        if workers.len() >= MIN_LIKE_THREADS {
            evidence.push(load_line(pool, &workers, factor));
        }
        evidence.push(tree(profile, &rule.compiled, &rows, totals.wall_ns, &of));
        rule.finding(&[at], share, evidence)
    };
    rule.pools.iter().flatten().filter_map(finding).collect()
}

fn observed_ns(workers: &[Worker<'_>]) -> u64 {
    let times = workers.iter().map(|w| w.thread.observed_ns);
    times.fold(0, u64::saturating_add)
}

fn counted_ns(workers: &[Worker<'_>]) -> u64 {
    let sums = workers.iter().map(|w| w.sum.weight);
    sums.fold(0, u64::saturating_add)
}

/// How much the threads of a pool do together, and how many times the mean the busiest does.
fn load_line(pool: &Pool, workers: &[Worker<'_>], factor: f64) -> Evidence {
    let name = format!(
        "{}: the busiest thread does {factor:.1} times the mean",
        pool.name
    );
    let n_threads = count(workers.len(), "thread");
    Evidence {
        heading: format!("the pool, % of the wall-clock time of its {n_threads}"),
        lines: vec![EvidenceLine::new(
            name,
            counted_ns(workers),
            observed_ns(workers),
        )],
        n_cut: 0,
    }
}

/// The threads that are in the rule's states nearly all the time, and how many times the mean the busiest
/// does; `None` when there is none.
fn saturated<'w>(rule: &AppliedRule<'_>, workers: &[Worker<'w>]) -> Option<(Vec<Worker<'w>>, f64)> {
    let share = |w: &Worker<'_>| percent(w.sum.weight, w.thread.observed_ns);
    let is_full = |w: &&Worker<'_>| w.is_known && share(w) >= rule.rule.threshold.percent;
    let full: Vec<Worker<'_>> = workers.iter().filter(is_full).copied().collect();
    let most = workers.iter().map(|w| w.sum.weight).max()?;
    let mean = (counted_ns(workers) as f64 / workers.len() as f64).max(1.0);
    (!full.is_empty()).then(|| (full, most as f64 / mean))
}

/// The threads that do the others' work, and how many times the mean the busiest does; `None` when the
/// work is even.
fn busier_than_others<'w>(
    rule: &AppliedRule<'_>,
    workers: &[Worker<'w>],
) -> Option<(Vec<Worker<'w>>, f64)> {
    let threshold = &rule.rule.threshold;
    let base: f64 = workers.iter().map(|w| w.base_ns as f64).sum();
    // Infinite without such time: then nothing is above it.
    let load_of_all = (counted_ns(workers) as f64).max(1.0) / base;
    let known = || workers.iter().filter(|w| w.is_known);
    let most = known().max_by(|a, b| a.load().total_cmp(&b.load()))?;
    let factor = most.load() / load_of_all;
    if workers.len() < MIN_LIKE_THREADS
        || factor < threshold.max_over_mean
        || most.load() * 100.0 < threshold.percent
        || least_load(rule, most) <= load_of_all
    {
        return None;
    }
    let busy = known().filter(|w| w.load() > 0.7 * most.load());
    let busy: Vec<Worker<'_>> = busy.copied().collect();
    let longest = busy.iter().map(|w| w.sum.weight).max()?;
    let is_long = percent(longest, rule.index.duration_ns) >= threshold.min_wall_percent;
    is_long.then_some((busy, factor))
}

/// The low end of the 95 % interval of a worker's load; the load itself where the recording is too
/// short for one. What a thread did in one long moment, or what few samples say, may be the others'
/// lot in the next recording.
fn least_load(rule: &AppliedRule<'_>, worker: &Worker<'_>) -> f64 {
    let Some(estimator) = rule.profile().estimator() else {
        return worker.load();
    };
    let base = rule.rule.threshold.of;
    let rows = rule.profile().rows.iter();
    let rows = rows.filter(|row| row.thread == worker.at && base.includes(row.state));
    let whole = course(&estimator, rows);
    let course = course(&estimator, worker.rows.iter().map(|c| c.row));
    let interval = estimator.interval(worker.sum.weight, &course, worker.base_ns, &whole);
    interval.low as f64 / worker.base_ns.max(1) as f64
}

/// The course of the weight of rows.
fn course<'r>(estimator: &Estimator, rows: impl Iterator<Item = &'r Row>) -> Course {
    rows.fold(Course::default(), |mut course, row| {
        course.add(&estimator.course(&row.slices));
        course
    })
}
