//! Adds up the time of a profile by pool.

use indexmap::IndexMap;
use wcprof_profile::model::{Pool, Profile};

use crate::matching::{any_glob, glob};
use crate::rule::{Base, Rule};

/// Time of one or more pools, ns.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) on_cpu_ns: u64,
    pub(crate) non_idle_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) n_threads: usize,
    /// Most ticks that one of the threads was observed in.
    pub(crate) max_ticks: u64,
}

impl Totals {
    pub(crate) fn base_ns(&self, base: Base) -> u64 {
        match base {
            Base::OnCpu => self.on_cpu_ns,
            Base::NonIdle => self.non_idle_ns,
            Base::Wall => self.wall_ns,
        }
    }

    fn add(&mut self, other: &Self) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.non_idle_ns = self.non_idle_ns.saturating_add(other.non_idle_ns);
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.n_threads += other.n_threads;
        self.max_ticks = self.max_ticks.max(other.max_ticks);
    }
}

/// What every rule needs to know of a profile.
pub(crate) struct Index<'p> {
    pub(crate) profile: &'p Profile,
    /// By pool.
    totals: Vec<Totals>,
    /// The pools of each process, in the order of their first pools.
    processes: Vec<Vec<usize>>,
    /// Length of the recording, ns; never 0.
    pub(crate) duration_ns: u64,
}

impl<'p> Index<'p> {
    pub(crate) fn new(profile: &'p Profile) -> Self {
        let mut totals = vec![Totals::default(); profile.pools.len()];
        for thread in &profile.threads {
            totals[thread.pool].add(&Totals {
                wall_ns: thread.observed_ns,
                n_threads: 1,
                max_ticks: thread.n_ticks,
                ..Totals::default()
            });
        }
        for row in &profile.rows {
            let weight_in = |base: Base| u64::from(base.includes(row.state)) * row.weight;
            totals[profile.threads[row.thread].pool].add(&Totals {
                on_cpu_ns: weight_in(Base::OnCpu),
                non_idle_ns: weight_in(Base::NonIdle),
                ..Totals::default()
            });
        }
        let mut processes: IndexMap<usize, Vec<usize>> = IndexMap::new();
        for (at, pool) in profile.pools.iter().enumerate() {
            processes.entry(pool.process).or_default().push(at);
        }
        // A recording that was cut has no closing statistics.
        let longest = profile.threads.iter().map(|t| t.observed_ns).max();
        Self {
            profile,
            totals,
            processes: processes.into_values().collect(),
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

    /// The host of a pool's process if the profile is of several hosts; else empty.
    pub(crate) fn host(&self, pool: &Pool) -> &str {
        let processes = &self.profile.processes;
        let host = processes.get(pool.process).map_or("", |p| p.host.as_str());
        match processes.iter().any(|p| p.host != host) {
            true => host,
            false => "",
        }
    }

    /// The name of a pool's process; empty when the pool has no thread.
    pub(crate) fn process_comm(&self, pool: &Pool) -> &str {
        let thread = pool.threads.first();
        thread.map_or("", |&t| self.profile.threads[t].process_comm.as_str())
    }
}
