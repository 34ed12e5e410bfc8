//! Runs the rules over a profile.

use std::cmp::Reverse;

use wcprof_profile::model::Profile;
use wcprof_text::percent;

use crate::applied::{AppliedRule, MIN_TICKS};
use crate::busy_threads::busy_threads;
use crate::counted::{Counted, Sum};
use crate::evidence::tree;
use crate::files::files;
use crate::finding::{Evidence, Finding};
use crate::locks::held_by;
use crate::matching::CompiledRule;
use crate::rule::{Kind, Scope, Show};
use crate::rule_set::RuleSet;
use crate::totals::Index;

/// Above this many pools of one process, findings of the same rule are merged into one.
const MAX_FINDINGS_A_RULE: usize = 3;

/// Tests every rule; the worst and largest findings come first.
///
/// A rule that matches in one to three pools of a process gives a finding for each; in more,
/// one for all of them. If no pool passes the rule's threshold by itself, all pools of the
/// process that the rule looks at are tested together.
pub fn hotspots(profile: &Profile, rules: &RuleSet) -> Vec<Finding> {
    let index = Index::new(profile);
    let mut findings = Vec::new();
    for rule in rules.rules() {
        let pools = index.pools(rule);
        // Compiling its expressions takes longer than all the rest.
        if pools.is_empty() {
            continue;
        }
        let rule = AppliedRule {
            index: &index,
            rule,
            pools,
            compiled: CompiledRule::new(profile, rule),
        };
        findings.extend(match rule.rule.matches.kind {
            Kind::Stacks => by_stacks(&rule),
            Kind::Threads | Kind::Imbalance => busy_threads(&rule),
        });
    }
    findings.sort_by(|a, b| {
        let by_share = b.share_percent().total_cmp(&a.share_percent());
        b.severity.cmp(&a.severity).then(by_share)
    });
    findings
}

/// What a rule counts, by pool.
type ByPool<'a> = [Vec<Counted<'a>>];

fn by_stacks(rule: &AppliedRule<'_>) -> Vec<Finding> {
    let profile = rule.profile();
    let mut is_looked_at = vec![false; profile.pools.len()];
    for &pool in rule.pools.iter().flatten() {
        is_looked_at[pool] = true;
    }
    let mut counted = vec![Vec::new(); profile.pools.len()];
    for row in profile.rows.iter().filter(|row| row.weight > 0) {
        let pool = profile.threads[row.thread].pool;
        if is_looked_at[pool]
            && let Some(anchor) = rule.compiled.test(profile, row)
        {
            counted[pool].push(Counted { row, anchor });
        }
    }
    let mut findings = Vec::new();
    // `scope = "process"` is over the pools that the rule looks at.
    for pools in &rule.pools {
        for (scope, group) in groups(rule, pools, &counted) {
            findings.extend(stack_finding(rule, scope, group, &counted));
        }
    }
    findings
}

/// The sets of pools of a process that make a finding each.
fn groups(
    rule: &AppliedRule<'_>,
    pools: &[usize],
    counted: &ByPool<'_>,
) -> Vec<(Scope, Vec<usize>)> {
    let threshold = &rule.rule.threshold;
    let passes = |pools: &[usize]| {
        let totals = rule.index.sum(pools);
        let sum = Sum::new(pools.iter().flat_map(|&p| &counted[p]));
        sum.weight > 0
            && totals.max_ticks >= MIN_TICKS
            && sum.n_samples >= threshold.min_samples
            && percent(sum.weight, totals.base_ns(threshold.of)) >= threshold.percent
            && percent(sum.weight, rule.index.duration_ns) >= threshold.min_wall_percent
    };
    let mut passing = pools.to_vec();
    passing.retain(|&pool| threshold.scope == Scope::Pool && passes(&[pool]));
    match passing.len() {
        // Pools are added up because samples are few; exact times need none.
        0 if threshold.scope == Scope::Pool && threshold.min_samples <= 1 => Vec::new(),
        0 if passes(pools) => vec![(Scope::Process, pools.to_vec())],
        0 => Vec::new(),
        1..=MAX_FINDINGS_A_RULE => {
            let each = passing.into_iter().map(|pool| (Scope::Pool, vec![pool]));
            each.collect()
        }
        _ => vec![(Scope::Pool, passing)],
    }
}

fn stack_finding(
    rule: &AppliedRule<'_>,
    scope: Scope,
    pools: Vec<usize>,
    counted: &ByPool<'_>,
) -> Option<Finding> {
    let profile = rule.profile();
    let base = rule.rule.threshold.of;
    let totals = rule.index.sum(&pools);
    let mut by_weight = pools;
    by_weight.retain(|&p| !counted[p].is_empty());
    by_weight.sort_by_key(|&p| Reverse(Sum::new(&counted[p]).weight));
    let rows = by_weight.iter().flat_map(|&p| &counted[p]);
    let rows: Vec<Counted<'_>> = rows.copied().collect();
    let share = rule.share(&rows, &totals, base, scope);
    let of = match (scope, by_weight.as_slice()) {
        (Scope::Process, _) => format!("the {} of the process", base.name()),
        (Scope::Pool, [pool]) => format!("the {} of {}", base.name(), profile.pools[*pool].name),
        (Scope::Pool, _) => format!("the {} of these pools", base.name()),
    };
    let base_ns = totals.base_ns(base);
    let mut evidence: Vec<Evidence> = Vec::new();
    match rule.rule.matches.evidence {
        Show::Threads => evidence.push(rule.thread_lines(&rows)),
        Show::Sites => evidence.extend(held_by(profile, &by_weight)),
        _ => {}
    }
    evidence.extend(files(profile, &rows, base_ns, &of));
    evidence.push(tree(profile, &rule.compiled, &rows, base_ns, &of));
    rule.finding(&by_weight, share, evidence)
}
