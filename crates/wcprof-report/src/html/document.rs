//! A profile to the page's data, all but the trees and the map.

use serde::Serialize;
use wcprof_findings::{Basis, Finding, process_name, share_sentence};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Cores, Group, GroupBy, GroupKey, View};

use super::map::CellsOut;
use super::nodes::{Labels, NodesOut, micros};
use super::strings::Strings;
use super::symbols::ModuleOut;
use crate::group::group_name;
use crate::headline::{Headline, recorded_by};

/// Most processes, notes and classes of daemons that a page names.
const MAX_NAMED: usize = 40;

/// All that a page shows. Numbers of strings are indices into `strings`; times are in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) schema: &'static str,
    pub(super) version: u32,
    pub(super) states: Vec<&'static str>,
    pub(super) headline: HeadlineOut,
    pub(super) view: ViewOut,
    pub(super) cores: Option<CoresOut>,
    pub(super) findings: Vec<FindingOut>,
    pub(super) groups: Vec<GroupOut>,
    pub(super) labels: Labels,
    /// Root first, by group.
    pub(super) calls: Option<NodesOut>,
    /// Leaf first, by group.
    pub(super) inverted: Option<NodesOut>,
    /// Leaf first, all groups together; `None` when there is but one.
    pub(super) inverted_all: Option<NodesOut>,
    pub(super) map: Option<MapOut>,
    pub(super) modules: Vec<ModuleOut>,
    /// What is merged or left out, in sentences.
    pub(super) omitted: Vec<String>,
    pub(super) strings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct HeadlineOut {
    title: String,
    processes: Vec<String>,
    n_processes: usize,
    duration_us: u64,
    window_us: Option<(u64, u64)>,
    n_threads: u64,
    n_samples: u64,
    rate_hz: u32,
    recorded_by: String,
    host: String,
    kernel: String,
    n_cpus: u32,
    started_unix_ms: u64,
    recorded_version: String,
    version: &'static str,
    states_us: Vec<u64>,
    n_torn: u64,
    n_late: u64,
    n_lost: u64,
    n_truncated: u64,
    truncated: Vec<(&'static str, u64)>,
    n_frames: u64,
    n_unresolved: u64,
    cut: Option<String>,
    own_cpu_us: u64,
    notes: Vec<String>,
}

pub(super) fn headline(
    profile: &Profile,
    headline: &Headline,
    title: &str,
    strings: &mut Strings,
) -> HeadlineOut {
    let h = headline;
    let mut clean = |texts: &[String]| -> Vec<String> {
        let some = texts.iter().take(MAX_NAMED);
        some.map(|text| strings.clean(text)).collect()
    };
    let (processes, notes) = (clean(&h.processes), clean(&h.notes));
    HeadlineOut {
        title: strings.clean(title),
        processes,
        n_processes: h.processes.len(),
        duration_us: micros(h.duration_ns),
        window_us: h.window_ns.map(|(from, to)| (micros(from), micros(to))),
        n_threads: h.n_threads,
        n_samples: h.n_samples,
        rate_hz: h.rate_hz,
        recorded_by: strings.clean(&recorded_by(&h.engine)),
        host: strings.clean(&profile.header.host),
        kernel: strings.clean(&profile.header.kernel),
        n_cpus: profile.header.n_cpus,
        started_unix_ms: profile.header.started_unix_ns / 1_000_000,
        recorded_version: strings.clean(&profile.header.wcprof_version),
        version: env!("CARGO_PKG_VERSION"),
        states_us: h.states.iter().copied().map(micros).collect(),
        n_torn: h.losses.n_torn,
        n_late: h.losses.n_late,
        n_lost: h.losses.n_lost,
        n_truncated: h.losses.n_truncated(),
        truncated: h
            .losses
            .truncated
            .iter()
            .map(|(end, n)| (end.reason(), *n))
            .collect(),
        n_frames: h.losses.n_frames,
        n_unresolved: h.losses.n_unresolved,
        cut: h.losses.cut.as_ref().map(|cut| strings.clean(cut)),
        own_cpu_us: micros(h.own_cpu_ns),
        notes,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ViewOut {
    /// What a group is.
    by: &'static str,
    idle: bool,
    min_percent: f64,
    /// The tree is around one function: its name and whether it shows callers.
    around: Option<(String, bool)>,
    /// The flags that chose the part of the trace.
    flags: Vec<String>,
}

pub(super) fn view(view: &View, flags: &[String], strings: &mut Strings) -> ViewOut {
    ViewOut {
        by: match view.by {
            GroupBy::Thread => "thread",
            GroupBy::Pool => "pool",
            GroupBy::Process => "process",
            GroupBy::Cgroup => "control group",
            GroupBy::Host => "host",
            GroupBy::All => "all",
        },
        idle: view.idle,
        min_percent: view.min_percent,
        around: view
            .around
            .as_ref()
            .map(|a| (strings.clean(&a.function.0), view.is_leaf_first())),
        flags: flags
            .iter()
            .take(MAX_NAMED)
            .map(|f| strings.clean(f))
            .collect(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct GroupOut {
    name: u32,
    n_threads: usize,
    /// Processes of its threads, the first few.
    processes: Vec<u32>,
    n_processes: usize,
    states_us: Vec<u64>,
    shown_us: u64,
    n_samples: u64,
}

pub(super) fn group(profile: &Profile, group: &Group, strings: &mut Strings) -> GroupOut {
    let name = match group.key {
        GroupKey::All => "all threads".to_owned(),
        _ => group_name(profile, group).unwrap_or_default(),
    };
    let threads = group.threads.iter().filter_map(|&t| profile.threads.get(t));
    let mut processes: Vec<usize> = threads.map(|t| t.process).collect();
    processes.sort_unstable();
    processes.dedup();
    let shown = processes
        .iter()
        .take(3)
        .filter_map(|&p| profile.processes.get(p));
    GroupOut {
        name: strings.id(&name),
        n_threads: group
            .threads
            .iter()
            .filter(|&&t| profile.threads.get(t).is_some_and(|t| t.tid.0 != 0))
            .count(),
        processes: shown
            .map(|p| strings.id(&format!("{} (pid {})", p.title, p.pid)))
            .collect(),
        n_processes: processes.len(),
        states_us: group.states.iter().copied().map(micros).collect(),
        shown_us: micros(group.weight),
        n_samples: group.n_samples,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct FindingOut {
    rule: u32,
    title: u32,
    severity: &'static str,
    process: u32,
    pools: Vec<u32>,
    /// The share of time as a sentence, or the settings found.
    basis: Vec<u32>,
    /// Counted time, and the time of its pools.
    matched_us: u64,
    wall_us: u64,
    states: Vec<usize>,
    evidence: Vec<EvidenceOut>,
    explanation: u32,
    advice: u32,
    gain: u32,
    sources: Vec<u32>,
    verify: u32,
    /// It is also among the findings of other pools.
    group: Option<usize>,
}

#[derive(Debug, Serialize)]
struct EvidenceOut {
    heading: u32,
    n_cut: usize,
    /// Depth, percent, microseconds, name, module.
    lines: Vec<(usize, f64, u64, u32, u32)>,
}

/// A finding; `group` is the group of its pool, if the view has one.
pub(super) fn finding(
    profile: &Profile,
    finding: &Finding,
    group: Option<usize>,
    strings: &mut Strings,
) -> FindingOut {
    let (matched, wall, states) = match &finding.basis {
        Basis::Time(share) => (share.matched_ns, share.wall_ns, share.states.as_slice()),
        _ => (0, 0, &[][..]),
    };
    let process = process_name(profile, finding);
    let basis = match &finding.basis {
        Basis::Setting(found) => found
            .settings
            .iter()
            .map(|s| strings.id(&format!("{}: {} [{}]", s.name, s.value, s.origin)))
            .collect(),
        _ => share_sentence(profile, finding)
            .iter()
            .map(|s| strings.id(s))
            .collect(),
    };
    let gain = match finding.gain.source.trim() {
        "" => finding.gain.text.trim().to_owned(),
        source => format!("{} ({source})", finding.gain.text.trim()),
    };
    FindingOut {
        rule: strings.id(&finding.rule),
        title: strings.id(&finding.title),
        severity: finding.severity.name(),
        process: strings.id(&format!("{process} (pid {})", finding.pid)),
        pools: finding.pools.iter().map(|p| strings.id(p)).collect(),
        basis,
        matched_us: micros(matched),
        wall_us: micros(wall),
        states: states.iter().map(|s| *s as usize).collect(),
        evidence: finding
            .evidence
            .iter()
            .map(|evidence| EvidenceOut {
                heading: strings.id(&evidence.heading),
                n_cut: evidence.n_cut,
                lines: evidence
                    .lines
                    .iter()
                    .map(|line| {
                        let percent = (line.percent * 100.0).round() / 100.0;
                        let name = strings.id(&line.name);
                        let module = strings.id(&line.module);
                        (line.depth, percent, micros(line.weight_ns), name, module)
                    })
                    .collect(),
            })
            .collect(),
        explanation: strings.id(finding.explanation.trim()),
        advice: strings.id(finding.advice.trim()),
        gain: strings.id(&gain),
        sources: finding
            .sources
            .iter()
            .map(|s| strings.id(&format!("\"{}\": {}", s.report, s.figure.trim())))
            .collect(),
        verify: strings.id(finding.verify.trim()),
        group,
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CoresOut {
    cores: f64,
    us_per_op: Option<f64>,
    classes: Vec<ClassOut>,
    ratios: Vec<(String, String, f64)>,
}

#[derive(Debug, Serialize)]
struct ClassOut {
    name: String,
    cores: f64,
    us_per_op: Option<f64>,
    n_threads: usize,
    /// Name, pid, host, cores, threads, and why it ended before the recording.
    processes: Vec<(String, i32, String, f64, usize, Option<String>)>,
    n_processes: usize,
}

pub(super) fn cores(cores: &Cores, strings: &mut Strings) -> CoresOut {
    CoresOut {
        cores: cores.cores,
        us_per_op: cores.us_per_op,
        classes: cores
            .classes
            .iter()
            .take(MAX_NAMED)
            .map(|class| ClassOut {
                name: strings.clean(&class.class),
                cores: class.cores,
                us_per_op: class.us_per_op,
                n_threads: class.n_threads,
                processes: class
                    .processes
                    .iter()
                    .take(MAX_NAMED)
                    .map(|p| {
                        let ended = p.ended.as_ref().map(|e| strings.clean(e));
                        let (title, host) = (strings.clean(&p.title), strings.clean(&p.host));
                        (title, p.pid, host, p.cores, p.n_threads, ended)
                    })
                    .collect(),
                n_processes: class.processes.len(),
            })
            .collect(),
        ratios: cores
            .ratios
            .iter()
            .take(MAX_NAMED)
            .map(|r| (strings.clean(&r.class), strings.clean(&r.to), r.ratio))
            .collect(),
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MapOut {
    pub(super) begin_us: u64,
    pub(super) bin_us: u64,
    pub(super) n_bins: usize,
    /// Length of the axis: the last bin may be cut short.
    pub(super) duration_us: u64,
    pub(super) rows: Vec<MapRowOut>,
}

#[derive(Debug, Serialize)]
pub(super) struct MapRowOut {
    /// Index of the group; `None` for threads of several.
    pub(super) group: Option<usize>,
    pub(super) name: u32,
    /// The process; only where there are several.
    pub(super) process: Option<u32>,
    pub(super) n_threads: usize,
    #[serde(flatten)]
    pub(super) cells: CellsOut,
}

/// The names of states, by number, and of what the view leaves out.
pub(super) fn state_names() -> Vec<&'static str> {
    let names = State::ALL.into_iter().map(State::name);
    names.chain(["left out by the filters"]).collect()
}
