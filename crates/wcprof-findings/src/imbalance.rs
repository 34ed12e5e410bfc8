//! Pools of like threads of which few do most of the work.

use wcprof_profile::model::{Pool, Row};
use wcprof_profile::{Course, Estimator};
use wcprof_text::percent;

use crate::applied::{AppliedRule, MIN_LIKE_THREADS};
use crate::counted::{Counted, Sum};
use crate::finding::Finding;

/// What one of the threads does of what the rule counts.
struct Worker {
    thread: usize,
    sum: Sum,
    /// Its own time, ns.
    base_ns: u64,
    /// A share of its own time: threads that starve get less CPU time to work in.
    load: f64,
    /// Whether its samples are enough to judge it by.
    is_known: bool,
}

/// Pools of which few threads do most of what the rule counts.
pub(crate) fn uneven_pools(rule: &AppliedRule<'_>) -> Vec<Finding> {
    let rows_of = rule.rows_by_thread();
    let base = rule.rule.threshold.of;
    let mut base_of = vec![0_u64; rows_of.len()];
    for row in rule
        .profile()
        .rows
        .iter()
        .filter(|row| base.includes(row.state))
    {
        base_of[row.thread] = base_of[row.thread].saturating_add(row.weight);
    }
    let worker = |&thread: &usize| {
        let sum = Sum::new(&rows_of[thread]);
        Worker {
            thread,
            sum,
            base_ns: base_of[thread],
            load: sum.weight as f64 / base_of[thread].max(1) as f64,
            is_known: sum.n_samples >= rule.rule.threshold.min_samples,
        }
    };
    let finding = |(at, pool): (usize, &Pool)| {
        let threads = pool.threads.iter().copied();
        let threads: Vec<usize> = threads.filter(|&t| rule.is_observed(t)).collect();
        if threads.len() < MIN_LIKE_THREADS {
            return None;
        }
        let workers: Vec<Worker> = threads.iter().map(worker).collect();
        let (busy, factor) = busy_threads(rule, &workers, &rows_of)?;
        let rows: Vec<Counted<'_>> = busy.iter().flat_map(|&t| &rows_of[t]).copied().collect();
        let line = rule.load_line(pool, &threads, counted_ns(&workers), factor);
        rule.thread_finding(at, &busy, &rows, Some(line))
    };
    rule.pools().filter_map(finding).collect()
}

fn counted_ns(workers: &[Worker]) -> u64 {
    workers
        .iter()
        .fold(0, |sum, w| sum.saturating_add(w.sum.weight))
}

/// The threads that do the others' work, and how many times the mean the busiest does; `None` when the
/// work is even.
fn busy_threads(
    rule: &AppliedRule<'_>,
    workers: &[Worker],
    rows_of: &[Vec<Counted<'_>>],
) -> Option<(Vec<usize>, f64)> {
    let threshold = &rule.rule.threshold;
    let base: f64 = workers.iter().map(|w| w.base_ns as f64).sum();
    // Infinite without such time: then nothing is above it.
    let load_of_all = (counted_ns(workers) as f64).max(1.0) / base;
    let known = || workers.iter().filter(|w| w.is_known);
    let most = known().max_by(|a, b| a.load.total_cmp(&b.load))?;
    let factor = most.load / load_of_all;
    if factor < threshold.max_over_mean
        || most.load * 100.0 < threshold.percent
        || least_load(rule, most, &rows_of[most.thread]) <= load_of_all
    {
        return None;
    }
    let busy = || known().filter(|w| w.load > 0.7 * most.load);
    let longest = busy().map(|w| w.sum.weight).max().unwrap_or(0);
    (percent(longest, rule.index.duration_ns) >= threshold.min_wall_percent)
        .then(|| (busy().map(|w| w.thread).collect(), factor))
}

/// The low end of the 95 % interval of a worker's load; the load itself where the recording is too
/// short for one. What a thread did in one long moment, or what few samples say, may be the others'
/// lot in the next recording.
fn least_load(rule: &AppliedRule<'_>, worker: &Worker, counted: &[Counted<'_>]) -> f64 {
    let Some(estimator) = rule.profile().estimator() else {
        return worker.load;
    };
    let base = rule.rule.threshold.of;
    let rows = rule.profile().rows.iter();
    let rows = rows.filter(|row| row.thread == worker.thread && base.includes(row.state));
    let whole = course(&estimator, rows);
    let course = course(&estimator, counted.iter().map(|c| c.row));
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
