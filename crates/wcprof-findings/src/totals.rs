//! Adds up a profile's time by pool.

use wcprof_profile::model::{Profile, ProfileProcess, State};

use crate::rule::Base;

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
    pub(crate) fn of(&self, base: Base) -> u64 {
        match base {
            Base::OnCpu => self.on_cpu_ns,
            Base::NonIdle => self.non_idle_ns,
            Base::Wall => self.wall_ns,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.non_idle_ns = self.non_idle_ns.saturating_add(other.non_idle_ns);
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.n_threads = self.n_threads.saturating_add(other.n_threads);
        self.max_ticks = self.max_ticks.max(other.max_ticks);
    }
}

/// What every rule needs to know of a profile.
pub(crate) struct Index<'p> {
    pub(crate) profile: &'p Profile,
    /// By pool.
    pub(crate) pools: Vec<Totals>,
    /// Length of the recording, ns; never 0.
    pub(crate) duration_ns: u64,
}

impl<'p> Index<'p> {
    pub(crate) fn new(profile: &'p Profile) -> Self {
        let mut pools = vec![Totals::default(); profile.pools.len()];
        for thread in &profile.threads {
            if let Some(pool) = pools.get_mut(thread.pool) {
                pool.add(&Totals {
                    wall_ns: thread.observed_ns,
                    n_threads: 1,
                    max_ticks: thread.n_ticks,
                    ..Totals::default()
                });
            }
        }
        for row in &profile.rows {
            let pool = profile.threads.get(row.thread).map(|t| t.pool);
            let Some(pool) = pool.and_then(|p| pools.get_mut(p)) else {
                continue;
            };
            if row.state == State::OnCpu {
                pool.on_cpu_ns = pool.on_cpu_ns.saturating_add(row.weight);
            }
            if row.state != State::Idle {
                pool.non_idle_ns = pool.non_idle_ns.saturating_add(row.weight);
            }
        }
        // A recording that was cut has no closing statistics.
        let longest = profile.threads.iter().map(|t| t.observed_ns).max();
        let duration_ns = profile.duration_ns().max(longest.unwrap_or(0)).max(1);
        Self {
            profile,
            pools,
            duration_ns,
        }
    }

    pub(crate) fn sum(&self, pools: &[usize]) -> Totals {
        let mut sum = Totals::default();
        for totals in pools.iter().filter_map(|&p| self.pools.get(p)) {
            sum.add(totals);
        }
        sum
    }

    /// Processes in the order of their first pool, each with its pools.
    pub(crate) fn processes(&self) -> Vec<(usize, Vec<usize>)> {
        let mut processes: Vec<(usize, Vec<usize>)> = Vec::new();
        for (i, pool) in self.profile.pools.iter().enumerate() {
            match processes.iter_mut().find(|(at, _)| *at == pool.process) {
                Some((_, pools)) => pools.push(i),
                None => processes.push((pool.process, vec![i])),
            }
        }
        processes
    }

    /// The host of a pool's process, where the profile is of several; else empty.
    pub(crate) fn host(&self, pool: usize) -> &str {
        let host = |process: usize| {
            let process = self.profile.processes.get(process);
            process.map_or("", |p| p.host.as_str())
        };
        let of = self.profile.pools.get(pool).map_or("", |p| host(p.process));
        let is_other = |p: &ProfileProcess| p.host != of;
        match self.profile.processes.iter().any(is_other) {
            true => of,
            false => "",
        }
    }

    /// The name of a pool's process; empty when the pool has no thread.
    pub(crate) fn process_comm(&self, pool: usize) -> &str {
        let threads = self.profile.pools.get(pool).map(|p| p.threads.as_slice());
        threads
            .and_then(|t| self.profile.threads.get(*t.first()?))
            .map_or("", |t| t.process_comm.as_str())
    }
}

/// `part` of `whole` in percent; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}
