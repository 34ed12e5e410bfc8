//! A rule on a profile to findings: what all kinds of rules have in common.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Course, Interval};
use wcprof_text::percent;

use crate::counted::{Counted, Sum};
use crate::finding::{Basis, Evidence, EvidenceLine, Finding, TimeShare};
use crate::matching::CompiledRule;
use crate::rule::{Base, Rule, Scope};
use crate::totals::{Index, Totals};

/// Lines that name threads.
const MAX_THREAD_LINES: usize = 4;

/// A rule on a profile.
pub(crate) struct AppliedRule<'a> {
    pub(crate) index: &'a Index<'a>,
    pub(crate) rule: &'a Rule,
    /// The pools of each process that it is about; no list is empty.
    pub(crate) pools: Vec<Vec<usize>>,
    pub(crate) compiled: CompiledRule<'a>,
}

impl<'a> AppliedRule<'a> {
    pub(crate) fn profile(&self) -> &'a Profile {
        self.index.profile
    }

    /// The 95 % interval of the time of `rows`, which is a part of `whole_ns`. In a recording that is too
    /// short for one, everything is possible.
    pub(crate) fn interval(&self, rows: &[Counted<'_>], whole_ns: u64, whole: &Course) -> Interval {
        let Some(estimator) = &self.index.estimator else {
            return Interval {
                low: 0,
                high: whole_ns,
            };
        };
        let mut course = Course::default();
        for counted in rows {
            course.add(&estimator.course(&counted.row.slices));
        }
        estimator.interval(Sum::new(rows).weight, &course, whole_ns, whole)
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
        let interval = self.interval(rows, totals.base_ns(base), totals.course(base));
        let states: BTreeSet<State> = rows.iter().map(|c| c.row.state).collect();
        TimeShare {
            matched_ns: sum.weight,
            low_ns: interval.low,
            high_ns: interval.high,
            n_samples: sum.n_samples,
            states: states.into_iter().collect(),
            base,
            scope,
            on_cpu_ns: totals.on_cpu_ns,
            non_idle_ns: totals.non_idle_ns,
            wall_ns: totals.wall_ns,
            n_threads: totals.n_threads,
            tids: Vec::new(),
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
                let all = states.values().copied().fold(0, u64::saturating_add);
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
        let basis = Basis::Time(share);
        Some(Finding {
            pools: pools.map(|p| p.name.clone()).collect(),
            evidence,
            ..Finding::of_rule(self.rule, self.profile(), first.process, basis)
        })
    }
}
