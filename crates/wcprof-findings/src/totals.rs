//! Adds up the time of a profile by pool.

use indexmap::IndexMap;
use wcprof_profile::model::{Pool, Profile, Row};
use wcprof_profile::{Course, Estimator};

use crate::matching::{any_glob, glob};
use crate::rule::{Base, Rule};

/// Time of one or more pools, ns.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) on_cpu_ns: u64,
    pub(crate) non_idle_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) n_threads: usize,
    /// Courses of the times above, in the same order.
    pub(crate) courses: [Course; 3],
}

impl Totals {
    pub(crate) fn base_ns(&self, base: Base) -> u64 {
        match base {
            Base::OnCpu => self.on_cpu_ns,
            Base::NonIdle => self.non_idle_ns,
            Base::Wall => self.wall_ns,
        }
    }

    pub(crate) fn course(&self, base: Base) -> &Course {
        &self.courses[base as usize]
    }

    /// Adds a row's time to what it is a part of.
    fn add_row(&mut self, row: &Row, estimator: Option<&Estimator>) {
        let course = estimator.map(|estimator| estimator.course(&row.slices));
        let bases = [Base::OnCpu, Base::NonIdle, Base::Wall];
        for base in bases.into_iter().filter(|base| base.includes(row.state)) {
            if let Some(course) = &course {
                self.courses[base as usize].add(course);
            }
            let sum = match base {
                Base::OnCpu => &mut self.on_cpu_ns,
                Base::NonIdle => &mut self.non_idle_ns,
                // What was observed, which is known without rows.
                Base::Wall => continue,
            };
            *sum = sum.saturating_add(row.weight);
        }
    }

    fn add(&mut self, other: &Self) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.non_idle_ns = self.non_idle_ns.saturating_add(other.non_idle_ns);
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.n_threads += other.n_threads;
        for (sum, course) in self.courses.iter_mut().zip(&other.courses) {
            sum.add(course);
        }
    }
}

/// What every rule needs to know of a profile.
pub(crate) struct Index<'p> {
    pub(crate) profile: &'p Profile,
    /// By thread.
    pub(crate) threads: Vec<Totals>,
    /// By pool.
    totals: Vec<Totals>,
    /// The pools of each process, in the order of their first pools.
    processes: Vec<Vec<usize>>,
    /// `None` when the recording is too short for intervals.
    pub(crate) estimator: Option<Estimator>,
    /// Length of the recording, ns; never 0.
    pub(crate) duration_ns: u64,
}

impl<'p> Index<'p> {
    pub(crate) fn new(profile: &'p Profile) -> Self {
        let estimator = profile.estimator();
        let threads = profile.threads.iter().map(|thread| Totals {
            wall_ns: thread.observed_ns,
            n_threads: 1,
            ..Totals::default()
        });
        let mut threads: Vec<Totals> = threads.collect();
        for row in &profile.rows {
            threads[row.thread].add_row(row, estimator.as_ref());
        }
        let mut totals = vec![Totals::default(); profile.pools.len()];
        for (thread, own) in profile.threads.iter().zip(&threads) {
            totals[thread.pool].add(own);
        }
        let mut processes: IndexMap<usize, Vec<usize>> = IndexMap::new();
        for (at, pool) in profile.pools.iter().enumerate() {
            processes.entry(pool.process).or_default().push(at);
        }
        // A recording that was cut has no closing statistics.
        let longest = profile.threads.iter().map(|t| t.observed_ns).max();
        Self {
            profile,
            threads,
            totals,
            processes: processes.into_values().collect(),
            estimator,
            duration_ns: profile.duration_ns().max(longest.unwrap_or(0)).max(1),
        }
    }

    pub(crate) fn sum(&self, pools: &[usize]) -> Totals {
        let mut sum = Totals::default();
        pools.iter().for_each(|&pool| sum.add(&self.totals[pool]));
        sum
    }

    /// The pools of each process that a rule is about; no list is empty.
    pub(crate) fn pools(&self, rule: &Rule) -> Vec<Vec<usize>> {
        let m = &rule.matches;
        let is_about = |at: &usize| {
            let pool = &self.profile.pools[*at];
            any_glob(&m.processes, self.process_comm(pool))
                && any_glob(&m.pools, &pool.name)
                && !m.exclude_pools.iter().any(|g| glob(g, &pool.name))
        };
        let pools = self.processes.iter().map(|pools| {
            let pools = pools.iter().copied();
            pools.filter(is_about).collect::<Vec<usize>>()
        });
        pools.filter(|pools| !pools.is_empty()).collect()
    }

    /// The name of a pool's process; empty when the pool has no thread.
    fn process_comm(&self, pool: &Pool) -> &str {
        let thread = pool.threads.first();
        thread.map_or("", |&t| self.profile.threads[t].process_comm.as_str())
    }
}

/// The host of a process if the profile is of several hosts; else empty.
pub(crate) fn host(profile: &Profile, process: usize) -> &str {
    let processes = &profile.processes;
    let host = processes.get(process).map_or("", |p| p.host.as_str());
    match processes.iter().any(|p| p.host != host) {
        true => host,
        false => "",
    }
}
