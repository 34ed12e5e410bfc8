//! Fleets to findings: the processes, and threads, that are unlike their like.
//!
//! Each figure of each member is compared with the median of its fleet. The chances are corrected for the number of
//! comparisons (Bonferroni), so that in 95 of 100 profiles without such a member none is found.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use wcprof_profile::model::Profile;
use wcprof_profile::{Deviation, Estimate, Figure, Fleet, Spread};

use crate::finding::{Basis, Comparison, Evidence, EvidenceLine, Finding};
use crate::matching::any_glob;
use crate::rule::{Kind, Rule};
use crate::rule_set::RuleSet;
use crate::totals::Index;

/// Members from which on one can be called unlike the others.
pub const MIN_LIKE: usize = 5;
/// The chance of any false finding in a profile.
const LEVEL: f64 = 0.05;
/// Where more than one of so many members are unlike in a figure, they are another kind, not outliers.
const OTHER_KIND: usize = 5;
/// Lines of evidence.
const MAX_LINES: usize = 8;

/// A member of a fleet that is unlike the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Outlier {
    /// Which of the fleets.
    pub fleet: usize,
    /// Which of its members.
    pub member: usize,
    /// In which figures, by their places in the fleet; the largest difference first.
    pub figures: Vec<(usize, Comparison)>,
}

/// The outliers of fleets by all rules that compare processes.
pub fn outliers(profile: &Profile, fleets: &[Fleet], rules: &RuleSet) -> Vec<Outlier> {
    let rules = rules.rules().iter();
    let rules = rules.filter(|rule| rule.matches.kind == Kind::LikeProcesses);
    rules
        .flat_map(|rule| by_rule(profile, fleets, rule))
        .collect()
}

/// The outliers of fleets by a rule, in the order of the fleets.
fn by_rule(profile: &Profile, fleets: &[Fleet], rule: &Rule) -> Vec<Outlier> {
    let least = rule.threshold.min_wall_percent / 100.0;
    let mut n_compared = 0_usize;
    let mut candidates = Vec::new();
    for (at, fleet) in fleets.iter().enumerate() {
        if !is_about(profile, fleet, rule) {
            continue;
        }
        for (place, (figure, values)) in fleet.figures.iter().enumerate() {
            let is_seen = values.iter().any(|one| one.value >= least);
            let Some(spread) = Spread::new(values).filter(|_| is_seen) else {
                continue;
            };
            n_compared += values.len();
            let far = values.iter().enumerate().filter(|(member, one)| {
                let process = profile.processes.get(fleet.members[*member].process);
                // What stands for several is unlike one.
                if process.is_some_and(|process| process.is_folded) {
                    return false;
                }
                let difference = (one.value - spread.median).abs();
                difference >= least && difference >= spread.median * rule.threshold.percent / 100.0
            });
            let far =
                far.map(|(member, one)| (member, comparison(fleet, member, figure, &spread, one)));
            let far: Vec<(usize, Comparison)> = far.collect();
            candidates.push((at, place, far));
        }
    }
    let limit = LEVEL / n_compared.max(1) as f64;
    let mut found: BTreeMap<(usize, usize), Vec<(usize, Comparison)>> = BTreeMap::new();
    for (fleet, figure, mut far) in candidates {
        far.retain(|(_, one)| one.p < limit);
        if far.len() * OTHER_KIND > fleets[fleet].members.len() {
            continue;
        }
        for (member, one) in far {
            found
                .entry((fleet, member))
                .or_default()
                .push((figure, one));
        }
    }
    let outliers = found.into_iter().map(|((fleet, member), mut figures)| {
        // Stable: of a state and what makes all of it the state comes first.
        figures.sort_by_key(|(_, one)| Reverse(one.difference_ns));
        Outlier {
            fleet,
            member,
            figures,
        }
    });
    outliers.collect()
}

/// Whether a fleet is large enough, and of processes that the rule is about.
fn is_about(profile: &Profile, fleet: &Fleet, rule: &Rule) -> bool {
    let mut members = fleet.members.iter();
    fleet.members.len() >= MIN_LIKE
        && members.all(|member| {
            let process = profile.processes.get(member.process);
            process.is_some_and(|process| any_glob(&rule.matches.processes, &process.comm))
        })
}

fn comparison(
    fleet: &Fleet,
    member: usize,
    figure: &Figure,
    spread: &Spread,
    one: &Estimate,
) -> Comparison {
    let Deviation { ratio, interval, p } = spread.deviation(one);
    let of = &fleet.members[member];
    let difference = (one.value - spread.median).abs();
    Comparison {
        class: fleet.class.clone(),
        n_like: fleet.members.len(),
        figure: figure.clone(),
        at_a_time: one.value,
        median: spread.median,
        mad: spread.mad,
        ratio,
        interval,
        p,
        difference_ns: (difference * of.recorded_ns as f64) as u64,
        non_idle_ns: of.non_idle_ns,
    }
}

/// A finding for each outlier.
pub(crate) fn unlike(index: &Index<'_>, rule: &Rule, fleets: &[Fleet]) -> Vec<Finding> {
    let outliers = by_rule(index.profile, fleets, rule).into_iter();
    let findings = outliers.filter_map(|one| finding(index, rule, &fleets[one.fleet], one));
    findings.collect()
}

fn finding(index: &Index<'_>, rule: &Rule, fleet: &Fleet, outlier: Outlier) -> Option<Finding> {
    let member = fleet.members.get(outlier.member)?;
    let lines = outlier.figures.iter().map(|(_, one)| {
        let name = format!("{}: {}", what(&one.figure), comparison_text(one));
        EvidenceLine::new(name, one.difference_ns, one.non_idle_ns)
    });
    let heading = "differences, % of its own time that is not idle".to_owned();
    let evidence = Evidence::cut(heading, lines.collect(), MAX_LINES);
    let (_, first) = outlier.figures.into_iter().next()?;
    let (title, pools) = match fleet.of_threads {
        true => (
            format!("{}: {}", member.name, title(&first, "threads")),
            vec![fleet.class.clone()],
        ),
        false => (title(&first, "processes"), Vec::new()),
    };
    let basis = Basis::Unlike(first);
    Some(Finding {
        title,
        pools,
        evidence: vec![evidence],
        ..Finding::of_rule(rule, index.profile, member.process, basis)
    })
}

/// `3.1 times the lock time of the median of 60 ceph-osd processes`.
fn title(one: &Comparison, noun: &str) -> String {
    let like = format!("{} {} {noun}", one.n_like, one.class);
    let what = what(&one.figure);
    match one.ratio.filter(|ratio| *ratio < MAX_RATIO) {
        Some(ratio) => format!("{} times the {what} of the median of {like}", times(ratio)),
        None => format!("{what}, of which the median of {like} has next to none"),
    }
}

/// Above it a ratio says no more than that the median is next to nothing.
const MAX_RATIO: f64 = 1000.0;

fn times(ratio: f64) -> String {
    match ratio {
        0.0..0.095 => format!("{ratio:.2}"),
        _ => format!("{ratio:.1}"),
    }
}

/// `0.62 threads on average, median 0.20, MAD 0.02; 3.1 times the median (2.8 to 3.4)`.
pub fn comparison_text(one: &Comparison) -> String {
    let text = format!(
        "{:.2} threads on average, median {:.2}, MAD {:.3}",
        one.at_a_time, one.median, one.mad
    );
    match one
        .ratio
        .zip(one.interval)
        .filter(|(ratio, _)| *ratio < MAX_RATIO)
    {
        Some((ratio, (low, high))) => format!(
            "{text}; {} times the median ({} to {})",
            times(ratio),
            times(low),
            times(high)
        ),
        None => text,
    }
}

/// What a figure is of: `lock time`.
fn what(figure: &Figure) -> String {
    match figure {
        Figure::State(state) => format!("{} time", state.name()),
        Figure::Category(name) => format!("CPU time for {name}"),
        Figure::Lock(function) => format!("lock time in {function}"),
    }
}
