//! Rules on single threads: those that are busy all the time, and those that do most of their pool's work.

use wcprof_profile::model::{Pool, ProfileThread};
use wcprof_text::{count, percent};

use crate::applied::AppliedRule;
use crate::counted::{Counted, Sum};
use crate::evidence::tree;
use crate::finding::{Evidence, EvidenceLine, Hotspots, TimeShare, Undecided};
use crate::rule::{Base, Kind, Scope};
use crate::totals::Totals;
use crate::verdict::{Verdict, needed_s};

/// Share of the recording that a single thread must be seen for, percent, before its load is
/// called lasting.
const MIN_OBSERVED_PERCENT: f64 = 50.0;

/// Part of a busy thread's counted time that must be on a CPU: one that mostly waits for a CPU needs that, and not less work.
const MIN_RUNNING: f64 = 0.25;

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
}

impl Worker<'_> {
    /// A share of its own time: threads that starve get less CPU time to work in.
    fn load(&self) -> f64 {
        self.sum.weight as f64 / self.base_ns.max(1) as f64
    }

    /// The 95 % interval of its load.
    fn load_interval(&self, rule: &AppliedRule<'_>) -> (f64, f64) {
        let whole = rule.index.threads[self.at].course(rule.rule.threshold.of);
        let interval = rule.interval(self.rows, self.base_ns, whole);
        let part = |ns: u64| ns as f64 / self.base_ns.max(1) as f64;
        (part(interval.low), part(interval.high))
    }

    /// As [`AppliedRule::needed_s`], of its load.
    fn needed_s(&self, rule: &AppliedRule<'_>) -> Option<u64> {
        let (low, high) = self.load_interval(rule);
        let recorded_s = rule.index.duration_ns as f64 / 1e9;
        let ends = (low * 100.0, high * 100.0);
        let needed = needed_s(
            self.load() * 100.0,
            ends,
            rule.rule.threshold.percent,
            recorded_s,
        );
        rule.suggested_s(needed)
    }
}

/// Adds a finding for each pool with such threads.
pub(crate) fn busy_threads(rule: &AppliedRule<'_>, found: &mut Hotspots) {
    let profile = rule.profile();
    let threshold = &rule.rule.threshold;
    let mut rows_of = vec![Vec::new(); profile.threads.len()];
    for row in &profile.rows {
        if let Some(anchor) = rule.compiled.test(profile, row) {
            rows_of[row.thread].push(Counted { row, anchor });
        }
    }
    let worker = |&at: &usize| {
        let thread = &profile.threads[at];
        let observed = percent(thread.observed_ns, rule.index.duration_ns);
        let worker = Worker {
            at,
            thread,
            rows: &rows_of[at],
            sum: Sum::new(&rows_of[at]),
            base_ns: rule.index.threads[at].base_ns(threshold.of),
        };
        // Seen long enough to say something about its load.
        (observed >= MIN_OBSERVED_PERCENT).then_some(worker)
    };
    let finding = |at: usize, workers: &[Worker<'_>], busy: Vec<Worker<'_>>| {
        let pool = &profile.pools[at];
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
            evidence.push(load_line(pool, workers));
        }
        evidence.push(tree(profile, &rule.compiled, &rows, totals.wall_ns, &of));
        rule.finding(&[at], share, evidence)
    };
    for &at in rule.pools.iter().flatten() {
        let workers = profile.pools[at].threads.iter();
        let workers: Vec<Worker<'_>> = workers.filter_map(worker).collect();
        match rule.rule.matches.kind {
            Kind::Imbalance => {
                let busy = busier_than_others(rule, &workers);
                let finding = busy.and_then(|busy| finding(at, &workers, busy));
                found.findings.extend(finding);
            }
            _ => {
                let (full, maybe) = saturated(rule, &workers);
                if !full.is_empty() {
                    found.findings.extend(finding(at, &workers, full));
                } else if let Some(most) = maybe.iter().max_by_key(|w| w.sum.weight) {
                    let needed_s = most.needed_s(rule);
                    let finding = finding(at, &workers, maybe);
                    found.undecided.extend(finding.map(|finding| Undecided {
                        finding,
                        threshold_percent: threshold.percent,
                        min_wall_percent: threshold.min_wall_percent,
                        needed_s,
                    }));
                }
            }
        }
    }
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
fn load_line(pool: &Pool, workers: &[Worker<'_>]) -> Evidence {
    let most = workers.iter().map(Worker::load).fold(0.0, f64::max);
    let base: f64 = workers.iter().map(|w| w.base_ns as f64).sum();
    let factor = most / ((counted_ns(workers) as f64).max(1.0) / base);
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

/// The threads that are in the rule's states nearly all the time, and those that may be.
fn saturated<'w>(
    rule: &AppliedRule<'_>,
    workers: &[Worker<'w>],
) -> (Vec<Worker<'w>>, Vec<Worker<'w>>) {
    let least = rule.rule.threshold.percent;
    let (mut full, mut maybe) = (Vec::new(), Vec::new());
    let runs = |worker: &&Worker<'_>| {
        let on_cpu_ns = rule.index.threads[worker.at].on_cpu_ns;
        on_cpu_ns as f64 >= MIN_RUNNING * worker.sum.weight as f64
    };
    for worker in workers.iter().filter(|w| w.sum.weight > 0).filter(runs) {
        let (low, high) = worker.load_interval(rule);
        match Verdict::new(low * 100.0 >= least, high * 100.0 >= least) {
            Verdict::Above => full.push(*worker),
            Verdict::Undecided => maybe.push(*worker),
            Verdict::Below => {}
        }
    }
    (full, maybe)
}

/// The threads that do the others' work; `None` when the work is even, or may be: what a thread did in one
/// long moment, or what few samples say, may be the others' lot in the next recording.
fn busier_than_others<'w>(
    rule: &AppliedRule<'_>,
    workers: &[Worker<'w>],
) -> Option<Vec<Worker<'w>>> {
    let threshold = &rule.rule.threshold;
    let base: f64 = workers.iter().map(|w| w.base_ns as f64).sum();
    // Infinite without such time: then nothing is above it.
    let load_of_all = (counted_ns(workers) as f64).max(1.0) / base;
    let most = workers
        .iter()
        .max_by(|a, b| a.load().total_cmp(&b.load()))?;
    let (least_load, _) = most.load_interval(rule);
    if workers.len() < MIN_LIKE_THREADS
        || least_load < threshold.max_over_mean * load_of_all
        || least_load * 100.0 < threshold.percent
    {
        return None;
    }
    let busy = workers.iter().filter(|w| w.load() > 0.7 * most.load());
    let busy: Vec<Worker<'_>> = busy.copied().collect();
    let longest = busy.iter().map(|w| w.sum.weight).max()?;
    let is_long = percent(longest, rule.index.duration_ns) >= threshold.min_wall_percent;
    is_long.then_some(busy)
}
