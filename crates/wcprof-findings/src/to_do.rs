//! What to do, one item for each action: findings of time and of settings together.

use std::cmp::Reverse;

use indexmap::IndexMap;
use wcprof_profile::model::Profile;
use wcprof_text::percent;

use crate::finding::{Basis, Finding, TimeShare, by_rank};
use crate::rule::Severity;
use crate::text::{whose, with_interval};

/// An action and why to take it. Not escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToDo {
    /// The worst of its findings.
    pub severity: Severity,
    /// What was found, and how much of what time it takes.
    pub why: String,
    /// What to do.
    pub action: String,
}

/// Findings as actions, the most to gain first. Of one process, findings with the same action are one: the
/// setting that doctor found, and the time that it costs.
pub fn to_do<'f>(profile: &Profile, findings: impl IntoIterator<Item = &'f Finding>) -> Vec<ToDo> {
    let mut groups: IndexMap<_, Vec<&Finding>> = IndexMap::new();
    for finding in findings {
        let key = (finding.pid, &finding.host, &finding.action);
        groups.entry(key).or_default().push(finding);
    }
    let mut groups: Vec<Vec<&Finding>> = groups.into_values().collect();
    for group in &mut groups {
        group.sort_by(|a, b| by_rank(b.rank(), a.rank()));
    }
    let severity = |group: &[&Finding]| group.iter().map(|f| f.severity).max();
    groups.sort_by(|a, b| {
        Reverse(severity(a))
            .cmp(&Reverse(severity(b)))
            .then(by_rank(b[0].rank(), a[0].rank()))
    });
    let items = groups.iter().map(|group| ToDo {
        severity: severity(group).unwrap_or(Severity::Info),
        why: why(profile, group),
        action: group[0].action.clone(),
    });
    items.collect()
}

/// `Memory comes from libc's malloc: 16.3 % (12.1 to 20.9) of osd.0's on-CPU time`.
fn why(profile: &Profile, group: &[&Finding]) -> String {
    let first = group[0];
    let process = &first.process;
    let prefix = match profile.processes.len() {
        0 | 1 => String::new(),
        _ => format!("{process}: "),
    };
    let title = &first.title;
    let also: Vec<&str> = group[1..]
        .iter()
        .filter(|f| f.rule == first.rule)
        .flat_map(|f| f.pools.iter().map(String::as_str))
        .collect();
    let also = match also.as_slice() {
        [] => String::new(),
        pools => format!("; also {}", pools.join(", ")),
    };
    match &first.basis {
        Basis::Time(share) => {
            let share = share_text(share, first);
            format!("{prefix}{title}: {share}{also}")
        }
        Basis::Unlike(_) => format!("{prefix}{title}"),
        Basis::Setting(found) | Basis::Limit(found) => {
            let setting = found.settings.first();
            let setting = setting.map_or_else(String::new, |s| format!(": {} {}", s.name, s.value));
            // What a limit costs, by the finding on time that has its action.
            let cost = group.iter().find_map(|finding| match &finding.basis {
                Basis::Time(share) => Some(share_text(share, finding)),
                _ => None,
            });
            let cost = cost.map_or_else(String::new, |cost| format!("; they wait {cost}"));
            format!("{prefix}{title}{setting}{cost}")
        }
    }
}

/// `16.3 % (12.1 to 20.9) of osd.0's on-CPU time`.
fn share_text(share: &TimeShare, finding: &Finding) -> String {
    let part = |ns| percent(ns, share.base_ns());
    let interval = (part(share.low_ns), part(share.high_ns));
    let share_text = with_interval(part(share.matched_ns), interval);
    format!("{share_text} of {}", whose(share, finding))
}
