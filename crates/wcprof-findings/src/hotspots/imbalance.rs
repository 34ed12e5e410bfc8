//! Pools of like threads of which few do most of the work.

use wcprof_profile::model::{Row, State};
use wcprof_profile::{Course, Estimator};

use super::{MIN_LIKE_THREADS, Sum, Tested};
use crate::evidence::Counted;
use crate::finding::Finding;
use crate::rule::Base;
use crate::totals::percent;

/// What one of the threads does of what the rule counts.
struct Worker {
    thread: usize,
    sum: Sum,
    /// Its own time, ns.
    base: u64,
    /// A share of its own time: threads that starve get less CPU time to work in.
    load: f64,
    /// Whether its samples are enough to judge it by.
    is_known: bool,
}

impl<'a> Tested<'a> {
    /// Pools of which few threads do most of what the rule counts.
    pub(super) fn imbalance(&self, processes: &[(usize, Vec<usize>)], findings: &mut Vec<Finding>) {
        let mut rows_of = self.rows_by_thread();
        let bases = self.bases();
        let threshold = &self.rule.threshold;
        for &pool in processes.iter().flat_map(|(_, pools)| pools) {
            let threads = self.threads_of(pool).iter().copied();
            let threads: Vec<usize> = threads.filter(|&t| self.is_observed(t)).collect();
            if threads.len() < MIN_LIKE_THREADS || !self.looks_at(pool) {
                continue;
            }
            let rows = |thread: usize| rows_of.get(&thread).map_or(&[][..], Vec::as_slice);
            let worker = |&thread: &usize| {
                let sum = Sum::rows(rows(thread));
                let base = bases.get(thread).copied().unwrap_or(0);
                Worker {
                    thread,
                    sum,
                    base,
                    load: sum.weight as f64 / base.max(1) as f64,
                    is_known: sum.n_samples >= threshold.min_samples,
                }
            };
            let workers: Vec<Worker> = threads.iter().map(worker).collect();
            let sums: Vec<Sum> = workers.iter().map(|w| w.sum).collect();
            let base: f64 = workers.iter().map(|w| w.base as f64).sum();
            // Infinite without such time: then nothing is above it.
            let load_of_all = (Sum::weights(&sums) as f64).max(1.0) / base;

            let known = || workers.iter().filter(|w| w.is_known);
            let Some(most) = known().max_by(|a, b| a.load.total_cmp(&b.load)) else {
                continue;
            };
            let factor = most.load / load_of_all;
            if factor < threshold.max_over_mean
                || most.load * 100.0 < threshold.percent
                || self.least_load(most, rows(most.thread)) <= load_of_all
            {
                continue;
            }
            // Those that do the others' work, too.
            let busy = || known().filter(|w| w.load > 0.7 * most.load);
            let longest = busy().map(|w| w.sum.weight).max().unwrap_or(0);
            if percent(longest, self.index.duration_ns) < threshold.min_wall_percent {
                continue;
            }
            let busy: Vec<usize> = busy().map(|w| w.thread).collect();
            let rows: Vec<Counted<'a>> = busy
                .iter()
                .filter_map(|t| rows_of.remove(t))
                .flatten()
                .collect();
            let line = self.load_line(pool, &threads, &sums, factor);
            findings.extend(self.thread_finding(pool, &busy, &rows, Some(line)));
        }
    }

    /// The low end of the 95 % interval of a worker's load; the load itself where the recording is too
    /// short for one. What a thread did in one long moment, or what few samples say, may be the others'
    /// lot in the next recording.
    fn least_load(&self, worker: &Worker, counted: &[Counted<'_>]) -> f64 {
        let Some(estimator) = self.profile().estimator() else {
            return worker.load;
        };
        let rows = self.profile().rows.iter();
        let rows = rows.filter(|row| row.thread == worker.thread && self.is_of_base(row.state));
        let whole = course(&estimator, rows);
        let course = course(&estimator, counted.iter().map(|c| c.row));
        let interval = estimator.interval(worker.sum.weight, &course, worker.base, &whole);
        interval.low as f64 / worker.base.max(1) as f64
    }

    /// Whether the time that shares are of has this state.
    fn is_of_base(&self, state: State) -> bool {
        match self.rule.threshold.of {
            Base::OnCpu => state == State::OnCpu,
            Base::NonIdle => state != State::Idle,
            Base::Wall => true,
        }
    }

    /// The time that each thread's share is of, ns.
    fn bases(&self) -> Vec<u64> {
        let mut bases = vec![0_u64; self.profile().threads.len()];
        for row in &self.profile().rows {
            let counts = self.is_of_base(row.state);
            if let Some(base) = bases.get_mut(row.thread).filter(|_| counts) {
                *base = base.saturating_add(row.weight);
            }
        }
        bases
    }
}

/// The course of the weight of rows.
fn course<'r>(estimator: &Estimator, rows: impl Iterator<Item = &'r Row>) -> Course {
    rows.fold(Course::default(), |mut course, row| {
        course.add(&estimator.course(&row.slices));
        course
    })
}
