//! What to do, one item for each action: findings of time and of settings together.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use indexmap::IndexMap;
use wcprof_profile::model::{Profile, State};
use wcprof_text::percent;
use wcprof_types::Pid;

use crate::finding::{Basis, CountedGain, ExpectedGain, Finding, Gains, TimeShare, by_remedy};
use crate::groups::{MANY, many_of_one, processes, sum_text};
use crate::rule::{Remedy, Severity};
use crate::text::whose;

/// What to do about a profile, and what that follows from. Not escaped.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToDoList {
    /// That threads wait for a CPU, where nothing can be set that ends this wait and something else can be changed.
    pub cpu_wait: Option<ToDo>,
    /// By what can be done, and within that by what it gives back, the most first.
    pub items: Vec<ToDo>,
}

/// An action and why to take it. Not escaped.
#[derive(Clone, PartialEq, Debug)]
pub struct ToDo {
    /// Of what kind the action is.
    pub remedy: Remedy,
    /// What it is expected to give back.
    pub gain: ExpectedGain,
    /// What was found, and how much of what time it takes.
    pub why: String,
    /// What to do.
    pub action: String,
}

/// Findings as actions, by what can be done about them and what that gives back. Findings of one host with the same action are
/// one thing to do, and their gains add up: the setting that doctor found and the time that it costs, and what many processes
/// have in common.
///
/// `counted`: what rules counted of what the settings among the findings cost ([`Hotspots::counted`](crate::Hotspots::counted)).
///
/// What follows from something else ([`Remedy::Nothing`], and the wait for a CPU) is no item where anything is found that can be
/// changed.
pub fn to_do<'f>(
    profile: &Profile,
    findings: impl IntoIterator<Item = &'f Finding>,
    counted: &[CountedGain],
) -> ToDoList {
    let gains = Gains::new(profile, counted);
    let mut groups: IndexMap<_, Group<'_>> = IndexMap::new();
    for finding in findings {
        let group = groups.entry((&finding.host, &finding.action)).or_default();
        group.findings.push((finding, gains.of(finding)));
    }
    let mut groups: Vec<Group<'_>> = groups.into_values().collect();
    let is_cause = |group: &Group<'_>| {
        group.findings.iter().any(|(finding, _)| {
            finding.remedy <= Remedy::Setting && finding.severity >= Severity::Medium
        })
    };
    groups.iter_mut().for_each(Group::settle);
    groups.sort_by(|a, b| by_remedy((a.findings[0].0, a.gain), (b.findings[0].0, b.gain)));
    let mut facts: Vec<Group<'_>> = Vec::new();
    if groups.iter().any(is_cause) {
        facts.extend(groups.extract_if(.., |group| group.is_fact()));
    }
    let cpu_wait = facts.iter().find(|group| group.waits_for_cpu());
    let item = |group: &Group<'_>| ToDo {
        remedy: group.findings[0].0.remedy,
        gain: group.gain,
        why: why(profile, &group.findings()),
        action: group.findings[0].0.action.clone(),
    };
    ToDoList {
        cpu_wait: cpu_wait.map(item),
        items: groups.iter().map(item).collect(),
    }
}

/// Findings with one action.
#[derive(Default)]
struct Group<'f> {
    /// With what each gives back; never empty.
    findings: Vec<(&'f Finding, ExpectedGain)>,
    /// What they give back together.
    gain: ExpectedGain,
}

impl<'f> Group<'f> {
    fn findings(&self) -> Vec<&'f Finding> {
        self.findings.iter().map(|(finding, _)| *finding).collect()
    }

    /// Whether all of it follows from something else, as the wait for a CPU does where no limit keeps threads from one.
    fn is_fact(&self) -> bool {
        let mut findings = self.findings.iter();
        let cannot_set = if self.waits_for_cpu() {
            Remedy::Rework
        } else {
            Remedy::Nothing
        };
        findings.all(|(finding, _)| finding.remedy >= cannot_set)
    }

    /// Whether it is the time that threads wait for a CPU.
    fn waits_for_cpu(&self) -> bool {
        match &self.findings[0].0.basis {
            Basis::Time(share) => share.states == [State::Runnable],
            Basis::Unlike(_) | Basis::Setting(_) | Basis::Limit(_) => false,
        }
    }

    /// Puts the finding that says most first: a limit before its symptom, and time before the setting that it is spent for. The
    /// gain of a process is that of its time, where some is counted, and else that of its settings.
    fn settle(&mut self) {
        let order = |finding: &Finding| match finding.basis {
            Basis::Limit(_) => 0,
            Basis::Time(_) | Basis::Unlike(_) => 1,
            Basis::Setting(_) => 2,
        };
        self.findings.sort_by(|a, b| {
            let by_basis = order(a.0).cmp(&order(b.0));
            by_basis.then_with(|| by_remedy(*a, *b))
        });
        let mut by_process: BTreeMap<Pid, (bool, Vec<ExpectedGain>)> = BTreeMap::new();
        for (finding, gain) in &self.findings {
            let is_timed = matches!(finding.basis, Basis::Time(_) | Basis::Unlike(_));
            let known = by_process
                .entry(finding.pid)
                .or_insert((is_timed, Vec::new()));
            match known.0.cmp(&is_timed) {
                Ordering::Less => *known = (is_timed, vec![*gain]),
                Ordering::Equal => known.1.push(*gain),
                Ordering::Greater => {}
            }
        }
        self.gain = ExpectedGain::sum(by_process.into_values().flat_map(|(_, gains)| gains));
    }
}

/// `osd.0 and 2 others: Memory comes from libc's malloc: 16.3 % of osd.0's on-CPU time`. Of a profile of one process
/// without the process.
fn why(profile: &Profile, group: &[&Finding]) -> String {
    let first = group[0];
    let prefix = match profile.processes.len() {
        0 | 1 => String::new(),
        _ => format!("{}: ", subjects(profile, group)),
    };
    let title = &first.title;
    let of_rule = |f: &&&Finding| f.rule == first.rule;
    let mut also: Vec<&str> = group[1..]
        .iter()
        .filter(|f| of_rule(f) && f.pid == first.pid)
        .flat_map(|f| f.pools.iter().map(String::as_str))
        .collect();
    also.dedup();
    let also = match also.as_slice() {
        [] => String::new(),
        pools => format!("; also {}", pools.join(", ")),
    };
    let is_timed = |f: &&&Finding| of_rule(f) && matches!(f.basis, Basis::Time(_));
    let timed: Vec<&Finding> = group.iter().filter(is_timed).copied().collect();
    match &first.basis {
        Basis::Time(_) if processes(profile, &timed).len() >= MANY => {
            format!("{prefix}{title}: {}", sum_text(&timed))
        }
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

/// `osd.0`, `osd.0 and lab`, `osd.0 and 2 others`, `8 of 15 postgres processes`: the processes of findings, the first one's first.
fn subjects(profile: &Profile, group: &[&Finding]) -> String {
    if let Some(many) = many_of_one(profile, group) {
        return many;
    }
    let subjects = processes(profile, group);
    let name = |(pid, title): &(Pid, &str)| {
        let like = profile.processes.iter().filter(|one| one.title == *title);
        match like.count() {
            0 | 1 => (*title).to_owned(),
            _ => format!("{title} (pid {pid})"),
        }
    };
    match subjects.as_slice() {
        [] => String::new(),
        [one] => name(one),
        [one, other] => format!("{} and {}", name(one), name(other)),
        [one, others @ ..] => format!("{} and {} others", name(one), others.len()),
    }
}

/// `16.3 % of osd.0's on-CPU time`. The interval is part of the finding, which `doctor` prints.
fn share_text(share: &TimeShare, finding: &Finding) -> String {
    let part = percent(share.matched_ns, share.base_ns());
    format!("{part:.1} % of {}", whose(share, finding))
}
