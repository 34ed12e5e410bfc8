//! Runs the rules over a profile.

use std::cmp::Reverse;

use wcprof_profile::Fleet;
use wcprof_profile::model::{Profile, State};

use crate::applied::AppliedRule;
use crate::busy_threads::busy_threads;
use crate::counted::{Counted, Sum};
use crate::counters::counters;
use crate::deadlocked::deadlocked;
use crate::evidence::tree;
use crate::files::files;
use crate::finding::{
    CountedGain, Evidence, Finding, Gains, Hotspots, Undecided, by_remedy, is_unnamed,
};
use crate::limits::limits_reached;
use crate::locks::held_by;
use crate::matching::CompiledRule;
use crate::pressure::pressure;
use crate::rule::{Kind, Remedy, Scope, Show};
use crate::rule_set::RuleSet;
use crate::sessions::DatabaseLocks;
use crate::starvation;
use crate::stopped::still_stopped;
use crate::totals::Index;
use crate::unlike::unlike;
use crate::verdict::Verdict;

/// Above this many pools of one process, findings of the same rule are merged into one.
const MAX_FINDINGS_A_RULE: usize = 3;

/// Tests every rule. A share is a finding when the low end of its 95 % interval reaches the rule's threshold,
/// and undecided when the interval spans it.
///
/// A rule that matches in one to three pools of a process gives a finding for each; in more, one for all of
/// them. `fleets`: the like processes of the profile, for the rules that compare them.
pub fn hotspots(profile: &Profile, rules: &RuleSet, fleets: &[Fleet]) -> Hotspots {
    let index = Index::new(profile);
    let mut found = Hotspots::default();
    for rule in rules.rules() {
        match rule.matches.kind {
            Kind::LikeProcesses => {
                found.findings.extend(unlike(&index, rule, fleets));
                continue;
            }
            Kind::Limit => {
                found.findings.extend(limits_reached(&index, rule));
                continue;
            }
            Kind::Stopped => {
                found.findings.extend(still_stopped(&index, rule));
                continue;
            }
            Kind::Deadlock => {
                found.findings.extend(deadlocked(&index, rule));
                continue;
            }
            Kind::Stacks | Kind::Threads | Kind::Imbalance => {}
        }
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
        match rule.rule.matches.kind {
            Kind::Stacks => by_stacks(&rule, &mut found),
            _ => busy_threads(&rule, &mut found),
        }
    }
    let undecided = found.undecided.iter_mut().map(|open| &mut open.finding);
    for finding in found.findings.iter_mut().chain(undecided) {
        finding.say_for_program(profile);
    }
    let gains = Gains::new(profile, &[]);
    let order = |a: &Finding, b: &Finding| by_remedy((a, gains.of(a)), (b, gains.of(b)));
    found.findings.sort_by(order);
    for finding in &mut found.findings {
        finding.gain = Some(gains.of(finding));
    }
    let part = |u: &Undecided| u.finding.percent_of_base() / u.threshold_percent;
    found.undecided.sort_by(|a, b| part(b).total_cmp(&part(a)));
    found
}

/// What a rule counts, by pool.
type ByPool<'a> = [Vec<Counted<'a>>];

fn by_stacks(rule: &AppliedRule<'_>, found: &mut Hotspots) {
    let profile = rule.profile();
    let mut is_looked_at = vec![false; profile.pools.len()];
    for &pool in rule.pools.iter().flatten() {
        is_looked_at[pool] = true;
    }
    let mut counted = vec![Vec::new(); profile.pools.len()];
    // Only of a setting it is asked what it is worth, found or not.
    let is_setting = rule.rule.remedy == Remedy::Setting;
    let mut unnamed = vec![0_u64; profile.pools.len()];
    for row in profile.rows.iter().filter(|row| row.weight > 0) {
        let pool = profile.threads[row.thread].pool;
        if !is_looked_at[pool] {
            continue;
        }
        if is_setting && row.state == State::OnCpu && is_unnamed(profile, row) {
            unnamed[pool] = unnamed[pool].saturating_add(row.weight);
        }
        if let Some(anchor) = rule.compiled.test(profile, row) {
            counted[pool].push(Counted { row, anchor });
        }
    }
    let scope = rule.rule.threshold.scope;
    // `scope = "process"` is over the pools that the rule looks at.
    for of_process in &rule.pools {
        let candidates = match scope {
            Scope::Process => vec![of_process.clone()],
            Scope::Pool => of_process.iter().map(|&pool| vec![pool]).collect(),
        };
        let (mut sure, mut open) = (Vec::new(), Vec::new());
        for pools in candidates {
            let rows = rows_of(&pools, &counted);
            match rule.verdict(&rows, &rule.index.sum(&pools)) {
                Verdict::Above => sure.push(pools),
                Verdict::Undecided => open.push(pools),
                Verdict::Below => {}
            }
        }
        if let Some(first) = of_process.first().filter(|_| is_setting) {
            let counted = Sum::new(&rows_of(of_process, &counted)).weight;
            let unnamed = of_process.iter().map(|&pool| unnamed[pool]);
            let unnamed = unnamed.fold(0, u64::saturating_add);
            let at = profile.pools[*first].process;
            let gain = CountedGain::new(rule.rule, profile, at, counted, unnamed);
            found.counted.push(gain);
        }
        for pools in merged(sure) {
            found.findings.extend(stack_finding(rule, pools, &counted));
        }
        for pools in merged(open) {
            let needed_s = rule.needed_s(&rows_of(&pools, &counted), &rule.index.sum(&pools));
            let finding = stack_finding(rule, pools, &counted);
            found.undecided.extend(finding.map(|finding| Undecided {
                finding,
                threshold_percent: rule.rule.threshold.percent,
                min_wall_percent: rule.rule.threshold.min_wall_percent,
                needed_s,
            }));
        }
    }
}

/// All pools together, if they are many.
fn merged(sets: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    match sets.len() {
        0..=MAX_FINDINGS_A_RULE => sets,
        _ => vec![sets.concat()],
    }
}

fn rows_of<'a>(pools: &[usize], counted: &ByPool<'a>) -> Vec<Counted<'a>> {
    pools.iter().flat_map(|&p| &counted[p]).copied().collect()
}

fn stack_finding(
    rule: &AppliedRule<'_>,
    pools: Vec<usize>,
    counted: &ByPool<'_>,
) -> Option<Finding> {
    let profile = rule.profile();
    let (base, scope) = (rule.rule.threshold.of, rule.rule.threshold.scope);
    let totals = rule.index.sum(&pools);
    let mut by_weight = pools;
    by_weight.retain(|&p| !counted[p].is_empty());
    by_weight.sort_by_key(|&p| Reverse(Sum::new(&counted[p]).weight));
    let rows = rows_of(&by_weight, counted);
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
    let cause = starvation::cause(rule, &by_weight, &rows);
    evidence.extend(
        cause
            .iter()
            .flat_map(|cause| cause.evidence.iter().cloned()),
    );
    let resource = rule.rule.pressure;
    evidence.extend(resource.and_then(|resource| pressure(profile, &by_weight, resource)));
    let timed = &rule.rule.counters;
    evidence.extend(counters(profile, timed, &by_weight, share.matched_ns));
    let mut finding = rule.finding(&by_weight, share, evidence)?;
    if rule.rule.matches.evidence == Show::Sites
        && let stacks = rows.iter().map(|counted| counted.row.stack)
        && let Some(only) = DatabaseLocks::new(profile, stacks).and_then(|locks| locks.only)
    {
        finding.action = format!("{only}: see what it does; else {}", finding.action);
    }
    Some(match cause {
        Some(cause) => cause.told(finding, &rule.rule.causes),
        None => finding,
    })
}
