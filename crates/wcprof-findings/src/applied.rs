//! A rule on a profile to findings: what all kinds of rules have in common.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use wcprof_profile::model::{Pool, Profile, State};
use wcprof_text::{count, percent};
use wcprof_types::Tid;

use crate::counted::{Counted, Sum};
use crate::evidence::tree;
use crate::finding::{Basis, Evidence, EvidenceLine, Finding, TimeShare};
use crate::matching::{CompiledRule, any_glob, glob};
use crate::rule::{Base, Rule, Scope};
use crate::totals::{Index, Totals};

/// Fewest ticks that a pool's longest observed thread must have: what was seen for less than
/// a fifth of a second (at 99 Hz) is no basis for advice.
pub const MIN_TICKS: u64 = 20;

/// Share of the recording that a single thread must be seen for, percent, before its load is
/// called lasting.
const MIN_OBSERVED_PERCENT: f64 = 50.0;

/// Threads that make a pool whose load can be uneven.
pub(crate) const MIN_LIKE_THREADS: usize = 2;

/// Lines that name threads.
const MAX_THREAD_LINES: usize = 4;

/// A rule on a profile.
pub(crate) struct AppliedRule<'a> {
    pub(crate) index: &'a Index<'a>,
    pub(crate) rule: &'a Rule,
    pub(crate) compiled: CompiledRule<'a>,
}

/// Whether a rule is about this pool.
pub(crate) fn looks_at(index: &Index<'_>, rule: &Rule, pool: &Pool) -> bool {
    let m = &rule.matches;
    any_glob(&m.processes, index.process_comm(pool))
        && any_glob(&m.pools, &pool.name)
        && !m.exclude_pools.iter().any(|g| glob(g, &pool.name))
}

impl<'a> AppliedRule<'a> {
    pub(crate) fn profile(&self) -> &'a Profile {
        self.index.profile
    }

    /// The pools that the rule is about, by index, process after process.
    pub(crate) fn pools(&self) -> impl Iterator<Item = (usize, &'a Pool)> {
        let pools = self.index.processes.iter().flatten();
        pools
            .map(|&at| (at, &self.profile().pools[at]))
            .filter(|(_, pool)| looks_at(self.index, self.rule, pool))
    }

    /// The rows that the rule counts, by thread.
    pub(crate) fn rows_by_thread(&self) -> Vec<Vec<Counted<'a>>> {
        let mut rows_of = vec![Vec::new(); self.profile().threads.len()];
        for row in &self.profile().rows {
            if let Some(anchor) = self.compiled.test(self.profile(), row) {
                rows_of[row.thread].push(Counted { row, anchor });
            }
        }
        rows_of
    }

    /// Whether a thread was seen long enough to say something about its load.
    pub(crate) fn is_observed(&self, thread: usize) -> bool {
        let thread = &self.profile().threads[thread];
        thread.n_ticks >= MIN_TICKS
            && percent(thread.observed_ns, self.index.duration_ns) >= MIN_OBSERVED_PERCENT
    }

    /// How much the threads of a pool do together, and how many times the mean the busiest does.
    pub(crate) fn load_line(
        &self,
        pool: &Pool,
        threads: &[usize],
        counted_ns: u64,
        factor: f64,
    ) -> Evidence {
        let threads = threads.iter().map(|&t| &self.profile().threads[t]);
        let n = threads.len();
        let wall_ns = threads.fold(0, |sum, t| u64::saturating_add(sum, t.observed_ns));
        let name = format!(
            "{}: the busiest thread does {factor:.1} times the mean",
            pool.name
        );
        Evidence {
            heading: format!(
                "the pool, % of the wall-clock time of its {}",
                count(n, "thread")
            ),
            lines: vec![EvidenceLine::new(name, counted_ns, wall_ns)],
            n_cut: 0,
        }
    }

    /// The finding that single threads of a pool give.
    pub(crate) fn thread_finding(
        &self,
        pool: usize,
        threads: &[usize],
        rows: &[Counted<'a>],
        load: Option<Evidence>,
    ) -> Option<Finding> {
        let profile = self.profile();
        let wall_ns = threads.iter().map(|&t| profile.threads[t].observed_ns);
        let totals = Totals {
            wall_ns: wall_ns.sum(),
            ..self.index.sum(&[pool])
        };
        let tids = threads.iter().map(|&t| profile.threads[t].tid);
        let share = TimeShare {
            tids: tids.collect(),
            ..self.share(rows, &totals, Base::Wall, Scope::Pool)
        };
        let of = format!("the wall-clock time of {}", count(threads.len(), "thread"));
        let mut evidence = vec![self.thread_lines(rows)];
        evidence.extend(load);
        evidence.push(tree(profile, &self.compiled, rows, totals.wall_ns, &of));
        self.finding(&[pool], share, evidence)
    }

    /// The time of `rows`, which all threads of the pools share.
    pub(crate) fn share(
        &self,
        rows: &[Counted<'_>],
        totals: &Totals,
        base: Base,
        scope: Scope,
    ) -> TimeShare {
        let sum = Sum::new(rows);
        let states: BTreeSet<State> = rows.iter().map(|c| c.row.state).collect();
        TimeShare {
            matched_ns: sum.weight,
            n_samples: sum.n_samples,
            states: states.into_iter().collect(),
            base,
            scope,
            on_cpu_ns: totals.on_cpu_ns,
            non_idle_ns: totals.non_idle_ns,
            wall_ns: totals.wall_ns,
            n_threads: totals.n_threads,
            tids: Vec::<Tid>::new(),
            duration_ns: self.index.duration_ns,
        }
    }

    /// One line for each of the threads with most counted time, percent of its observed time.
    pub(crate) fn thread_lines(&self, rows: &[Counted<'_>]) -> Evidence {
        let mut by_thread: BTreeMap<usize, BTreeMap<State, u64>> = BTreeMap::new();
        for c in rows {
            let states = by_thread.entry(c.row.thread).or_default();
            let weight = states.entry(c.row.state).or_default();
            *weight = weight.saturating_add(c.row.weight);
        }
        let mut lines: Vec<EvidenceLine> = by_thread
            .into_iter()
            .map(|(thread, states)| {
                let thread = &self.profile().threads[thread];
                let all = states
                    .values()
                    .fold(0, |sum, ns| u64::saturating_add(sum, *ns));
                let share = |(state, ns): (State, u64)| {
                    format!("{} {:.1} %", state.name(), percent(ns, thread.observed_ns))
                };
                let states: Vec<String> = states.into_iter().map(share).collect();
                let name = format!("{}/{} ({})", thread.comm, thread.tid, states.join(", "));
                EvidenceLine::new(name, all, thread.observed_ns)
            })
            .collect();
        lines.sort_by_key(|line| Reverse(line.weight_ns));
        Evidence::cut(
            "threads, % of each one's wall-clock time".to_owned(),
            lines,
            MAX_THREAD_LINES,
        )
    }

    /// A finding in pools, the one with most counted time first; `None` without evidence.
    pub(crate) fn finding(
        &self,
        pools: &[usize],
        share: TimeShare,
        mut evidence: Vec<Evidence>,
    ) -> Option<Finding> {
        evidence.retain(|e| !e.lines.is_empty());
        if evidence.is_empty() {
            return None;
        }
        let pools = pools.iter().map(|&p| &self.profile().pools[p]);
        let first = pools.clone().next()?;
        let rule = self.rule;
        Some(Finding {
            rule: rule.id.clone(),
            title: rule.title.clone(),
            severity: rule.severity,
            pid: first.pid,
            process: self.index.process_comm(first).to_owned(),
            host: self.index.host(first).to_owned(),
            pools: pools.map(|p| p.name.clone()).collect(),
            basis: Basis::Time(share),
            evidence,
            explanation: rule.explanation.clone(),
            advice: rule.advice.clone(),
            gain: rule.gain.clone(),
            sources: rule.sources.clone(),
            verify: rule.verify.clone(),
        })
    }
}
