//! Runs the rules over a profile.

mod imbalance;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use wcprof_profile::model::{Profile, ProfileThread, State};

use crate::evidence::{self, Counted, MAX_LINES};
use crate::files::files;
use crate::finding::{Basis, Evidence, EvidenceLine, Finding, TimeShare};
use crate::locks::held_by;
use crate::matching::{CompiledRule, any_glob, glob};
use crate::rule::{Base, Kind, Rule, Scope, Show, Threshold};
use crate::rule_set::RuleSet;
use crate::totals::{Index, Totals, percent};

/// Fewest ticks that a pool's longest observed thread must have: what was seen for less than
/// a fifth of a second (at 99 Hz) is no basis for advice.
pub const MIN_TICKS: u64 = 20;

/// Above this many pools of one process, findings of the same rule are merged into one.
const MAX_FINDINGS_A_RULE: usize = 3;

/// Share of the recording that a single thread must be seen for, percent, before its load is
/// called lasting.
const MIN_OBSERVED_PERCENT: f64 = 50.0;

/// Threads that make a pool whose load can be uneven.
const MIN_LIKE_THREADS: usize = 2;

/// Lines that name threads.
const MAX_THREAD_LINES: usize = 4;

/// Tests every rule; the worst and largest findings come first.
///
/// A rule that matches in one to three pools of a process gives a finding for each; in more,
/// one for all of them. If no pool passes the rule's threshold by itself, all pools of the
/// process that the rule looks at are tested together.
pub fn hotspots(profile: &Profile, rules: &RuleSet) -> Vec<Finding> {
    let index = Index::new(profile);
    let processes = index.processes();
    let mut findings = Vec::new();
    for rule in rules.rules() {
        // Compiling its expressions takes longer than all the rest.
        if !(0..profile.pools.len()).any(|pool| looks_at(&index, rule, pool)) {
            continue;
        }
        let compiled = CompiledRule::new(profile, rule);
        let tested = Tested {
            index: &index,
            rule,
            compiled: &compiled,
        };
        match rule.matches.kind {
            Kind::Stacks => tested.stacks(&processes, &mut findings),
            Kind::Threads => tested.threads(&processes, &mut findings),
            Kind::Imbalance => tested.imbalance(&processes, &mut findings),
        }
    }
    findings.sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then(b.share_percent().total_cmp(&a.share_percent()))
    });
    findings
}

/// Whether a rule is about this pool.
fn looks_at(index: &Index<'_>, rule: &Rule, pool: usize) -> bool {
    let m = &rule.matches;
    let Some(p) = index.profile.pools.get(pool) else {
        return false;
    };
    any_glob(&m.processes, index.process_comm(pool))
        && any_glob(&m.pools, &p.name)
        && !m.exclude_pools.iter().any(|g| glob(g, &p.name))
}

/// A rule on a profile.
struct Tested<'a> {
    index: &'a Index<'a>,
    rule: &'a Rule,
    compiled: &'a CompiledRule<'a>,
}

impl<'a> Tested<'a> {
    fn profile(&self) -> &'a Profile {
        self.index.profile
    }

    fn looks_at(&self, pool: usize) -> bool {
        looks_at(self.index, self.rule, pool)
    }

    fn stacks(&self, processes: &[(usize, Vec<usize>)], findings: &mut Vec<Finding>) {
        let n_pools = self.profile().pools.len();
        let looked_at: Vec<bool> = (0..n_pools).map(|p| self.looks_at(p)).collect();
        let mut counted: Vec<Vec<Counted<'a>>> = (0..n_pools).map(|_| Vec::new()).collect();
        for row in &self.profile().rows {
            let Some(thread) = self.profile().threads.get(row.thread) else {
                continue;
            };
            if looked_at.get(thread.pool) != Some(&true) || row.weight == 0 {
                continue;
            }
            if let Some(anchor) = self.compiled.test(self.profile(), row)
                && let Some(list) = counted.get_mut(thread.pool)
            {
                list.push(Counted { row, anchor });
            }
        }
        for (_, pools) in processes {
            // `scope = "process"` is over the pools that the rule looks at.
            let pools: Vec<usize> = pools
                .iter()
                .copied()
                .filter(|&p| looked_at.get(p) == Some(&true))
                .collect();
            for (scope, group) in self.groups(&pools, &counted) {
                findings.extend(self.stack_finding(scope, &group, &counted));
            }
        }
    }

    /// The sets of pools that make a finding each.
    fn groups(&self, pools: &[usize], counted: &[Vec<Counted<'_>>]) -> Vec<(Scope, Vec<usize>)> {
        if self.rule.threshold.scope == Scope::Pool {
            let passing: Vec<usize> = pools
                .iter()
                .copied()
                .filter(|&p| self.passes(&[p], counted))
                .collect();
            match passing.len() {
                // Pools are added up because samples are few; exact times need none.
                0 if self.rule.threshold.min_samples <= 1 => return Vec::new(),
                0 => {}
                1..=MAX_FINDINGS_A_RULE => {
                    return passing
                        .into_iter()
                        .map(|p| (Scope::Pool, vec![p]))
                        .collect();
                }
                _ => return vec![(Scope::Pool, passing)],
            }
        }
        if self.passes(pools, counted) {
            vec![(Scope::Process, pools.to_vec())]
        } else {
            Vec::new()
        }
    }

    fn passes(&self, pools: &[usize], counted: &[Vec<Counted<'_>>]) -> bool {
        let totals = self.index.sum(pools);
        let sum = Sum::of(pools, counted);
        let threshold = &self.rule.threshold;
        sum.weight > 0
            && totals.max_ticks >= MIN_TICKS
            && sum.n_samples >= threshold.min_samples
            && percent(sum.weight, totals.of(threshold.of)) >= threshold.percent
            && percent(sum.weight, self.index.duration_ns) >= threshold.min_wall_percent
    }

    fn stack_finding(
        &self,
        scope: Scope,
        pools: &[usize],
        counted: &[Vec<Counted<'a>>],
    ) -> Option<Finding> {
        let totals = self.index.sum(pools);
        let mut contributing: Vec<(usize, u64)> = pools
            .iter()
            .map(|&p| (p, Sum::of(&[p], counted).weight))
            .filter(|&(_, weight)| weight > 0)
            .collect();
        contributing.sort_by_key(|&(_, weight)| Reverse(weight));
        let order: Vec<usize> = contributing.iter().map(|&(p, _)| p).collect();
        let rows: Vec<Counted<'a>> = order
            .iter()
            .filter_map(|&p| counted.get(p))
            .flatten()
            .map(|c| Counted {
                row: c.row,
                anchor: c.anchor,
            })
            .collect();
        let base = self.rule.threshold.of;
        let share = self.share(&rows, &totals, (base, scope), Vec::new());
        let mut evidence = Vec::new();
        if self.rule.matches.evidence == Show::Threads {
            evidence.push(self.thread_lines(&rows));
        }
        if self.rule.matches.evidence == Show::Sites {
            let of = if order.len() == 1 { "it" } else { "they" };
            evidence.extend(held_by(self.profile(), &order, of));
        }
        let (base_ns, of) = (totals.of(base), self.base_words(scope, &order, base));
        evidence.extend(files(self.profile(), &rows, base_ns, &of));
        evidence.push(self.tree(&rows, base_ns, &of));
        self.finding(&order, share, evidence)
    }

    /// What the rule counts of each thread.
    fn rows_by_thread(&self) -> BTreeMap<usize, Vec<Counted<'a>>> {
        let mut rows_of: BTreeMap<usize, Vec<Counted<'a>>> = BTreeMap::new();
        for row in &self.profile().rows {
            if let Some(anchor) = self.compiled.test(self.profile(), row) {
                let rows = rows_of.entry(row.thread).or_default();
                rows.push(Counted { row, anchor });
            }
        }
        rows_of
    }

    /// The threads of a pool, as places in the profile's list.
    fn threads_of(&self, pool: usize) -> &'a [usize] {
        let pool = self.index.profile.pools.get(pool);
        pool.map_or(&[], |pool| pool.threads.as_slice())
    }

    fn is_observed(&self, thread: usize) -> bool {
        self.profile().threads.get(thread).is_some_and(|thread| {
            thread.n_ticks >= MIN_TICKS
                && percent(thread.observed_ns, self.index.duration_ns) >= MIN_OBSERVED_PERCENT
        })
    }

    /// How the counted time is spread over a pool, as a line of evidence.
    fn load_line(&self, pool: usize, threads: &[usize], sums: &[Sum], factor: f64) -> Evidence {
        let wall = threads
            .iter()
            .filter_map(|&t| self.profile().threads.get(t));
        let wall = wall.fold(0, |sum, t| u64::saturating_add(sum, t.observed_ns));
        let all = Sum::weights(sums);
        let name = self.profile().pools.get(pool).map_or("", |p| &p.name);
        Evidence {
            heading: format!(
                "the pool, % of the wall-clock time of its {}",
                plural(threads.len(), "thread")
            ),
            lines: vec![EvidenceLine {
                depth: 0,
                percent: percent(all, wall),
                weight_ns: all,
                name: format!("{name}: the busiest thread does {factor:.1} times the mean"),
                module: String::new(),
            }],
            n_cut: 0,
        }
    }

    fn threads(&self, processes: &[(usize, Vec<usize>)], findings: &mut Vec<Finding>) {
        let mut rows_of = self.rows_by_thread();
        for &pool in processes.iter().flat_map(|(_, pools)| pools) {
            if !self.looks_at(pool) {
                continue;
            }
            let threads = self.threads_of(pool).iter().copied();
            let rows_of_one = |t| rows_of.get(&t).map_or(&[][..], Vec::as_slice);
            let full: Vec<usize> = threads
                .clone()
                .filter(|&t| {
                    let thread = self.profile().threads.get(t);
                    thread.is_some_and(|thread| self.is_full(thread, rows_of_one(t)))
                })
                .collect();
            if full.is_empty() {
                continue;
            }
            let observed = threads.filter(|&t| self.is_observed(t));
            let sums: Vec<(usize, Sum)> =
                observed.map(|t| (t, Sum::rows(rows_of_one(t)))).collect();
            let load = self.load_of(pool, &sums);
            let rows: Vec<Counted<'a>> = full
                .iter()
                .filter_map(|t| rows_of.remove(t))
                .flatten()
                .collect();
            findings.extend(self.thread_finding(pool, &full, &rows, load));
        }
    }

    /// How full a pool is as a whole, where it has several threads.
    fn load_of(&self, pool: usize, threads: &[(usize, Sum)]) -> Option<Evidence> {
        if threads.len() < MIN_LIKE_THREADS {
            return None;
        }
        let (ids, sums): (Vec<usize>, Vec<Sum>) = threads.iter().copied().unzip();
        let all = Sum::weights(&sums);
        let most = sums.iter().map(|s| s.weight).max()?;
        let mean = (all as f64 / sums.len() as f64).max(1.0);
        Some(self.load_line(pool, &ids, &sums, most as f64 / mean))
    }

    fn is_full(&self, thread: &ProfileThread, rows: &[Counted<'_>]) -> bool {
        let threshold: &Threshold = &self.rule.threshold;
        let sum = Sum::rows(rows);
        thread.n_ticks >= MIN_TICKS
            && sum.n_samples >= threshold.min_samples
            && percent(thread.observed_ns, self.index.duration_ns) >= MIN_OBSERVED_PERCENT
            && percent(sum.weight, thread.observed_ns) >= threshold.percent
    }

    fn thread_finding(
        &self,
        pool: usize,
        full: &[usize],
        rows: &[Counted<'a>],
        load: Option<Evidence>,
    ) -> Option<Finding> {
        if full.is_empty() {
            return None;
        }
        let threads = || full.iter().filter_map(|&t| self.profile().threads.get(t));
        let wall_ns = threads().map(|t| t.observed_ns).sum();
        let totals = Totals {
            wall_ns,
            ..self.index.sum(&[pool])
        };
        let tids = threads().map(|t| t.tid).collect();
        let share = self.share(rows, &totals, (Base::Wall, Scope::Pool), tids);
        let n = full.len();
        let of = format!("the wall-clock time of {}", plural(n, "thread"));
        let mut evidence = vec![self.thread_lines(rows)];
        evidence.extend(load);
        evidence.push(self.tree(rows, wall_ns, &of));
        self.finding(&[pool], share, evidence)
    }

    fn share(
        &self,
        rows: &[Counted<'_>],
        totals: &Totals,
        (base, scope): (Base, Scope),
        tids: Vec<wcprof_types::Tid>,
    ) -> TimeShare {
        let sum = Sum::rows(rows);
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
            tids,
            duration_ns: self.index.duration_ns,
        }
    }

    /// What the evidence's percentages are of.
    fn base_words(&self, scope: Scope, pools: &[usize], base: Base) -> String {
        let what = base_name(base);
        let name = |p: usize| self.profile().pools.get(p).map_or("", |p| &p.name);
        match (scope, pools) {
            (Scope::Process, _) => format!("the {what} of the process"),
            (Scope::Pool, [pool]) => format!("the {what} of {}", name(*pool)),
            (Scope::Pool, _) => format!("the {what} of these pools"),
        }
    }

    fn tree(&self, rows: &[Counted<'_>], base_ns: u64, of: &str) -> Evidence {
        let show = self.rule.matches.evidence;
        evidence::tree(self.profile(), self.compiled, show, rows, base_ns, of)
    }

    /// One line for each of the threads with most counted time, percent of its observed time.
    fn thread_lines(&self, rows: &[Counted<'_>]) -> Evidence {
        let mut weights: BTreeMap<usize, BTreeMap<State, u64>> = BTreeMap::new();
        for c in rows {
            let states = weights.entry(c.row.thread).or_default();
            let weight = states.entry(c.row.state).or_default();
            *weight = weight.saturating_add(c.row.weight);
        }
        let mut threads: Vec<(u64, usize)> = weights
            .iter()
            .map(|(&thread, states)| {
                (
                    states.values().copied().fold(0, u64::saturating_add),
                    thread,
                )
            })
            .collect();
        threads.sort_by_key(|&(weight, thread)| (Reverse(weight), thread));
        let lines = threads
            .iter()
            .take(MAX_THREAD_LINES.min(MAX_LINES))
            .filter_map(|&(weight, thread)| {
                let t = self.profile().threads.get(thread)?;
                let states: Vec<String> = weights
                    .get(&thread)?
                    .iter()
                    .map(|(&state, &ns)| {
                        format!("{} {:.1} %", state.name(), percent(ns, t.observed_ns))
                    })
                    .collect();
                Some(EvidenceLine {
                    depth: 0,
                    percent: percent(weight, t.observed_ns),
                    weight_ns: weight,
                    name: format!("{}/{} ({})", t.comm, t.tid, states.join(", ")),
                    module: String::new(),
                })
            })
            .collect::<Vec<_>>();
        Evidence {
            heading: "threads, % of each one's wall-clock time".into(),
            n_cut: threads.len().saturating_sub(lines.len()),
            lines,
        }
    }

    fn finding(
        &self,
        pools: &[usize],
        share: TimeShare,
        evidence: Vec<Evidence>,
    ) -> Option<Finding> {
        let evidence: Vec<Evidence> = evidence
            .into_iter()
            .filter(|e| !e.lines.is_empty())
            .collect();
        let first = *pools.first()?;
        if evidence.is_empty() {
            return None;
        }
        let pool = |&p: &usize| self.profile().pools.get(p);
        let rule = self.rule;
        Some(Finding {
            rule: rule.id.clone(),
            title: rule.title.clone(),
            severity: rule.severity,
            pid: pool(&first)?.pid,
            process: self.index.process_comm(first).to_owned(),
            host: self.index.host(first).to_owned(),
            pools: pools
                .iter()
                .filter_map(pool)
                .map(|p| p.name.clone())
                .collect(),
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

/// Counted time.
#[derive(Copy, Clone)]
struct Sum {
    weight: u64,
    n_samples: u64,
}

impl Sum {
    fn of(pools: &[usize], counted: &[Vec<Counted<'_>>]) -> Self {
        let lists = pools.iter().filter_map(|&p| counted.get(p));
        lists.fold(
            Self {
                weight: 0,
                n_samples: 0,
            },
            |sum, list| sum.plus(list),
        )
    }

    fn weights(sums: &[Self]) -> u64 {
        sums.iter()
            .fold(0, |all, sum| all.saturating_add(sum.weight))
    }

    fn rows(rows: &[Counted<'_>]) -> Self {
        let nothing = Self {
            weight: 0,
            n_samples: 0,
        };
        nothing.plus(rows)
    }

    fn plus(self, rows: &[Counted<'_>]) -> Self {
        rows.iter().fold(self, |sum, c| Self {
            weight: sum.weight.saturating_add(c.row.weight),
            n_samples: sum.n_samples.saturating_add(c.row.n_samples),
        })
    }
}

/// As printed: `on-CPU time`.
pub(crate) fn base_name(base: Base) -> &'static str {
    match base {
        Base::OnCpu => "on-CPU time",
        Base::NonIdle => "non-idle time",
        Base::Wall => "wall-clock time",
    }
}

/// `1 thread`, `3 threads`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    if n == 1 {
        format!("1 {noun}")
    } else {
        format!("{n} {noun}s")
    }
}
