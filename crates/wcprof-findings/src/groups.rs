//! Findings of one rule in many processes of one program: how many they are, and what they count together.

use wcprof_profile::model::Profile;
use wcprof_text::percent;
use wcprof_types::Pid;

use crate::finding::{Basis, Finding, TimeShare};

/// Fewest processes of a program that are one thing, with their number.
pub(crate) const MANY: usize = 3;

/// The processes of findings, the first one's first.
pub(crate) fn processes<'f>(profile: &'f Profile, group: &[&'f Finding]) -> Vec<(Pid, &'f str)> {
    let mut subjects: Vec<(Pid, &str)> = Vec::new();
    for finding in group {
        // The profile's title tells OSDs of several clusters apart.
        let title = finding
            .program(profile)
            .map_or(&finding.process, |p| &p.title);
        let subject = (finding.pid, title.as_str());
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    subjects
}

/// `99.4 % of their non-idle time, 7.93 threads on average`: what findings of one rule count together.
pub(crate) fn sum_text(findings: &[&Finding]) -> String {
    let shares = findings.iter().filter_map(|finding| match &finding.basis {
        Basis::Time(share) => Some(share),
        _ => None,
    });
    let shares: Vec<&TimeShare> = shares.collect();
    let sum = |of: fn(&TimeShare) -> u64| {
        shares
            .iter()
            .map(|share| of(share))
            .fold(0, u64::saturating_add)
    };
    let matched = sum(|share| share.matched_ns);
    let base = shares.first().map_or("", |share| share.base.name());
    let duration = shares.first().map_or(1, |share| share.duration_ns.max(1));
    format!(
        "{:.1} % of their {base}, {:.2} threads on average",
        percent(matched, sum(TimeShare::base_ns)),
        matched as f64 / duration as f64,
    )
}

/// `8 of 15 postgres processes`, where findings are of many processes of one program.
pub(crate) fn many_of_one(profile: &Profile, group: &[&Finding]) -> Option<String> {
    let n = processes(profile, group).len();
    let class = &group.first()?.program(profile)?.class;
    let is_one = |finding: &&Finding| finding.program(profile).is_some_and(|p| p.class == *class);
    if n < MANY || !group.iter().all(is_one) {
        return None;
    }
    let all = profile
        .processes
        .iter()
        .filter(|p| p.class == *class)
        .count();
    Some(match n == all {
        true => format!("all {n} {class} processes"),
        false => format!("{n} of {all} {class} processes"),
    })
}
