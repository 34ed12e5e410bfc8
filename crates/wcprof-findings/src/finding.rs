//! A finding: what a rule or a check of settings found, with its evidence.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use wcprof_profile::Figure;
use wcprof_profile::model::{KERNEL, Profile, ProfileProcess, Row, State};
use wcprof_text::percent;
use wcprof_types::{Pid, Tid};

use crate::matching::glob;
use crate::program_text::for_program;
use crate::rule::{Base, Remedy, Rule, Scope, Severity, Source};
use crate::totals::host;

/// What rules found in a profile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Hotspots {
    /// The worst and largest come first.
    pub findings: Vec<Finding>,
    /// What may be above a threshold: the largest, as parts of their thresholds, come first.
    pub undecided: Vec<Undecided>,
    /// What each rule with a setting as its remedy counted in each process that it looked at, also below its threshold and 0.
    pub counted: Vec<CountedGain>,
}

/// What a change is expected to give back in a process, by the time that a rule counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedGain {
    /// As [`Finding::host`].
    pub(crate) host: String,
    /// The process.
    pub(crate) pid: Pid,
    /// The change, as [`Finding::action`].
    pub(crate) action: String,
    /// Time of threads over the recording, ns.
    pub(crate) gain_ns: u64,
    /// CPU time in functions of modules that have no name, in the pools that the rule looks at: it may be some of it, ns.
    pub(crate) unnamed_ns: u64,
}

impl CountedGain {
    /// By the counted time of a rule in the process at `at` of the profile, and that in functions without a name, ns.
    pub(crate) fn new(
        rule: &Rule,
        profile: &Profile,
        at: usize,
        counted_ns: u64,
        unnamed_ns: u64,
    ) -> Self {
        let process = profile.processes.get(at);
        let comm = process.map_or("", |process| process.comm.as_str());
        Self {
            host: host(profile, at).to_owned(),
            pid: process.map_or(Pid(0), |process| process.pid),
            action: for_program(&rule.action, comm),
            gain_ns: (returns(rule, comm) * counted_ns as f64) as u64,
            unnamed_ns,
        }
    }
}

/// A share whose 95 % interval spans the threshold of its rule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Undecided {
    /// What it would be as a finding.
    pub finding: Finding,
    /// The threshold, percent of the share's base.
    pub threshold_percent: f64,
    /// The other threshold, percent of one thread's time.
    pub min_wall_percent: f64,
    /// Length of a recording that would decide it, s, if the share stays what it is; `None` where the
    /// recording is too short to tell, or the share is at its threshold.
    pub needed_s: Option<u64>,
}

/// A place worth attention. Names are as in the profile, not escaped.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// Id of its rule or check.
    pub rule: String,
    /// One line that states it.
    pub title: String,
    /// How much it matters.
    pub severity: Severity,
    /// What to do, in a few words.
    pub action: String,
    /// Of what kind that is.
    pub remedy: Remedy,
    /// How much of the counted time it is expected to give back, as a part of it.
    pub returns: f64,
    /// What the remedy is expected to give back. `None`: a setting, of which that is not known without a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<ExpectedGain>,
    /// The process.
    pub pid: Pid,
    /// The process's name.
    pub process: String,
    /// The host that it ran on, in a trace of several hosts, on which pids can be equal; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The thread pools, most counted time first; none for a setting.
    pub pools: Vec<String>,
    /// What it rests on.
    pub basis: Basis,
    /// What shows it: never empty for time, always for settings, whose basis shows them.
    pub evidence: Vec<Evidence>,
    /// What the time is spent on, and why that matters.
    pub explanation: String,
    /// What to do.
    pub advice: String,
    /// Where advice and thresholds come from.
    pub sources: Vec<Source>,
    /// How to see that it helped.
    pub verify: String,
}

impl Finding {
    /// What a rule says of a process: without pools and evidence. `at`: the process's place in the profile.
    pub(crate) fn of_rule(rule: &Rule, profile: &Profile, at: usize, basis: Basis) -> Self {
        let process = profile.processes.get(at);
        Self {
            rule: rule.id.clone(),
            title: rule.title.clone(),
            severity: rule.severity,
            action: rule.action.clone(),
            remedy: rule.remedy,
            returns: returns(rule, process.map_or("", |process| &process.comm)),
            gain: None,
            pid: process.map_or(Pid(0), |process| process.pid),
            process: process.map_or_else(String::new, |process| process.title.clone()),
            host: host(profile, at).to_owned(),
            pools: Vec::new(),
            basis,
            evidence: Vec::new(),
            explanation: rule.explanation.clone(),
            advice: rule.advice.clone(),
            sources: rule.sources.clone(),
            verify: rule.verify.clone(),
        }
    }

    /// Leaves out of its texts what is said of other programs.
    pub(crate) fn say_for_program(&mut self, profile: &Profile) {
        let comm = self.program(profile).map_or("", |process| &process.comm);
        for text in [
            &mut self.title,
            &mut self.action,
            &mut self.explanation,
            &mut self.advice,
            &mut self.verify,
        ] {
            *text = for_program(text, comm);
        }
    }

    /// The process that it is of.
    pub(crate) fn program<'p>(&self, profile: &'p Profile) -> Option<&'p ProfileProcess> {
        let is_here = |process: &&ProfileProcess| {
            process.pid == self.pid && (self.host.is_empty() || process.host == self.host)
        };
        profile.processes.iter().find(is_here)
    }

    /// Its share of what its rule's threshold is of, percent; 0 for a setting and a comparison.
    pub fn percent_of_base(&self) -> f64 {
        match &self.basis {
            Basis::Time(share) => percent(share.matched_ns, share.base_ns()),
            Basis::Unlike(_) | Basis::Setting(_) | Basis::Limit(_) => 0.0,
        }
    }
}

/// What a remedy is expected to give back: what findings and things to do are ordered by.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ExpectedGain {
    /// Threads, on average over the recording, that no longer run or wait; of CPU time these are cores.
    pub threads: f64,
    /// Whether all of it is CPU time.
    pub is_cpu: bool,
    /// Whether some of it is an estimate: what such a remedy usually gives back, of time that no rule can count.
    pub is_estimate: bool,
}

impl ExpectedGain {
    /// `0.06 cores`, `0.14 threads`, `~0.20 cores` for an estimate.
    pub fn text(&self) -> String {
        let unit = if self.is_cpu { "cores" } else { "threads" };
        match self.threads {
            n if n < 0.005 => format!("<0.01 {unit}"),
            n if self.is_estimate => format!("~{n:.2} {unit}"),
            n => format!("{n:.2} {unit}"),
        }
    }

    /// Of remedies that are one.
    pub(crate) fn sum(gains: impl IntoIterator<Item = Self>) -> Self {
        let add = |a: Self, b: Self| Self {
            threads: a.threads + b.threads,
            is_cpu: a.is_cpu && b.is_cpu,
            is_estimate: a.is_estimate || b.is_estimate,
        };
        gains.into_iter().reduce(add).unwrap_or_default()
    }
}

/// What the remedies of a profile's findings are expected to give back.
pub(crate) struct Gains<'p> {
    profile: &'p Profile,
    counted: &'p [CountedGain],
    /// On-CPU time by process, ns, without that of emulated processors: what guests do is no matter of the process's settings.
    on_cpu_ns: Vec<u64>,
}

impl<'p> Gains<'p> {
    /// `counted`: what rules counted of what settings cost.
    pub(crate) fn new(profile: &'p Profile, counted: &'p [CountedGain]) -> Self {
        let mut on_cpu_ns = vec![0_u64; profile.processes.len()];
        for row in profile
            .rows
            .iter()
            .filter(|row| Base::OnCpu.includes(row.state))
        {
            let pool = profile.pools.get(profile.threads[row.thread].pool);
            if pool.is_some_and(|pool| glob("CPU N/*", &pool.name)) {
                continue;
            }
            if let Some(sum) = on_cpu_ns.get_mut(profile.threads[row.thread].process) {
                *sum = sum.saturating_add(row.weight);
            }
        }
        Self {
            profile,
            counted,
            on_cpu_ns,
        }
    }

    /// What a remedy gives back: of a time, so much of it as the rule says. Of a setting, what a rule with the same remedy counted
    /// in the process, and by severity a part of the CPU time that no rule can count; of one that no rule counts, and of a limit,
    /// that part of all CPU time.
    pub(crate) fn of(&self, finding: &Finding) -> ExpectedGain {
        let at_a_time = |ns: u64| ns as f64 / self.profile.duration_ns().max(1) as f64;
        match &finding.basis {
            Basis::Time(share) => ExpectedGain {
                threads: finding.returns * at_a_time(share.matched_ns),
                // What a single thread no longer does others may do.
                is_cpu: share.tids.is_empty()
                    && share.states.iter().all(|state| state.is_running()),
                is_estimate: false,
            },
            Basis::Unlike(one) => ExpectedGain {
                threads: at_a_time(one.difference_ns),
                ..ExpectedGain::default()
            },
            Basis::Setting(found) | Basis::Limit(found) => {
                if let Some(n) = found.n_threads {
                    return ExpectedGain {
                        threads: n as f64,
                        ..ExpectedGain::default()
                    };
                }
                let counted = self.counted.iter().filter(|counted| {
                    counted.pid == finding.pid
                        && counted.host == finding.host
                        && counted.action == finding.action
                });
                let part = finding.severity.usual_part();
                let gain = |counted: &CountedGain| {
                    let unnamed = part * at_a_time(counted.unnamed_ns);
                    (at_a_time(counted.gain_ns) + unnamed, unnamed > 0.0)
                };
                let counted = counted.map(gain).max_by(|a, b| a.0.total_cmp(&b.0));
                let usual = || (part * at_a_time(self.on_cpu_of(finding)), true);
                let (threads, is_estimate) = counted.unwrap_or_else(usual);
                ExpectedGain {
                    threads,
                    is_cpu: true,
                    is_estimate,
                }
            }
        }
    }

    /// On-CPU time of its process, ns.
    fn on_cpu_of(&self, finding: &Finding) -> u64 {
        let processes = self.profile.processes.iter().zip(&self.on_cpu_ns);
        let own = processes.filter(|(process, _)| {
            let is_here = finding.host.is_empty() || process.host == finding.host;
            is_here && process.pid == finding.pid
        });
        let own = own.map(|(_, ns)| *ns);
        own.fold(0, u64::saturating_add)
    }
}

/// Whether the function of a module that ran has no name.
pub(crate) fn is_unnamed(profile: &Profile, row: &Row) -> bool {
    let mut functions = profile.leaf_first(row);
    let leaf = functions.find(|function| function.module != KERNEL);
    leaf.is_some_and(|leaf| !leaf.resolved && !leaf.module.is_empty())
}

/// How much of the counted time of a process of this name a rule's remedy gives back, as a part of it.
fn returns(rule: &Rule, comm: &str) -> f64 {
    let mut known = rule.returns.iter();
    let known = known.find(|(pattern, _)| glob(pattern, comm));
    known.map_or(1.0, |(_, part)| *part)
}

/// Orders findings by what to do about them first: the kind of remedy, what it gives back, and how much the finding matters.
/// The gains are [`Gains::of`].
pub(crate) fn by_remedy(
    (a, gain_a): (&Finding, ExpectedGain),
    (b, gain_b): (&Finding, ExpectedGain),
) -> Ordering {
    (a.remedy.cmp(&b.remedy))
        .then(gain_b.threads.total_cmp(&gain_a.threads))
        .then(b.severity.cmp(&a.severity))
}

/// What a finding rests on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Basis {
    /// Time of threads.
    Time(TimeShare),
    /// A figure of a process or a thread, compared with the same figure of the others of its class.
    Unlike(Comparison),
    /// Settings of the process or its host.
    Setting(SettingsFound),
    /// What held threads up during the recording, a limit of a control group or who stopped them: what time shows of it is its
    /// symptom.
    Limit(SettingsFound),
}

/// A figure of one of many like processes or threads: the one with the largest difference.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// What it is like: the class of processes, or the pool of threads.
    pub class: String,
    /// How many are compared.
    pub n_like: usize,
    /// What is compared.
    pub figure: Figure,
    /// Threads at a time of this one.
    pub at_a_time: f64,
    /// The median of all.
    pub median: f64,
    /// Median distance from the median.
    pub mad: f64,
    /// In times the median; `None` where that is 0.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of `ratio`.
    pub interval: Option<(f64, f64)>,
    /// The chance that one like the others is so far from them.
    pub p: f64,
    /// Difference from the median over the recording.
    pub difference_ns: u64,
    /// Its time in every state but idle.
    pub non_idle_ns: u64,
}

/// Settings, and where each was read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SettingsFound {
    /// What was found; never empty.
    pub settings: Vec<Setting>,
    /// How many threads it holds up until it is ended; `None` where that is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_threads: Option<usize>,
}

/// A setting as it was found.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Its name, or what was looked at.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The file or option that it was read from.
    pub origin: String,
}

/// Counted time, and the times it is a share of. All in ns of wall-clock time, added up over
/// the threads of the finding's pools.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TimeShare {
    /// The time that the rule counted.
    pub matched_ns: u64,
    /// Ends of its 95 % confidence interval as a part of the base.
    pub low_ns: u64,
    /// The upper end.
    pub high_ns: u64,
    /// Samples it rests on; 0 when it is from the kernel's counters alone.
    pub n_samples: u64,
    /// The states it was spent in, in the order of [`State`].
    pub states: Vec<State>,
    /// What the rule's threshold and the evidence's percentages are of.
    pub base: Base,
    /// Whether the times are of the finding's pools, or of all pools of the process that the
    /// rule looks at.
    pub scope: Scope,
    /// On-CPU time of the pools.
    pub on_cpu_ns: u64,
    /// Time of the pools in every state but idle.
    pub non_idle_ns: u64,
    /// Observed time of the pools.
    pub wall_ns: u64,
    /// Threads of the pools.
    pub n_threads: usize,
    /// The threads it rests on, for rules on single threads; else empty.
    pub tids: Vec<Tid>,
    /// Length of the recording.
    pub duration_ns: u64,
}

impl TimeShare {
    /// The time that percentages are of.
    pub fn base_ns(&self) -> u64 {
        match self.base {
            Base::OnCpu => self.on_cpu_ns,
            Base::NonIdle => self.non_idle_ns,
            Base::Wall => self.wall_ns,
        }
    }
}

/// A part of a call tree, or a list of threads.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// What the lines are, and what their percentages are of.
    pub heading: String,
    /// The lines in print order; a line's children follow it with a greater depth.
    pub lines: Vec<EvidenceLine>,
    /// Lines that were cut.
    pub n_cut: usize,
}

impl Evidence {
    /// The first `max` lines.
    pub(crate) fn cut(heading: String, mut lines: Vec<EvidenceLine>, max: usize) -> Self {
        let n_cut = lines.len().saturating_sub(max);
        lines.truncate(max);
        Self {
            heading,
            lines,
            n_cut,
        }
    }
}

/// A node of the tree.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EvidenceLine {
    /// 0 for a root of the tree.
    pub depth: usize,
    /// Of the time that the heading names; `None` of a line that is no share of a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// ns of wall-clock time; 0 of a line that is no share of a time.
    pub weight_ns: u64,
    /// A function or a thread, or a text that says all.
    pub name: String,
    /// File name of the function's module; empty for a thread.
    pub module: String,
}

impl EvidenceLine {
    /// A line that is no function.
    pub(crate) fn new(name: String, weight_ns: u64, whole_ns: u64) -> Self {
        Self {
            depth: 0,
            // Nothing is a share of nothing.
            percent: (whole_ns > 0).then(|| percent(weight_ns, whole_ns)),
            weight_ns,
            name,
            module: String::new(),
        }
    }

    /// A line that is no share of a time.
    pub(crate) fn text(name: String) -> Self {
        Self {
            depth: 0,
            percent: None,
            weight_ns: 0,
            name,
            module: String::new(),
        }
    }
}

/// Start of the heading of evidence that names the holders of locks.
pub(crate) const HELD_BY: &str = "held by";
/// Start of the heading of evidence that names what waits are for.
pub(crate) const FILES: &str = "files and sockets";
