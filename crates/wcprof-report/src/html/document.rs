//! A profile to the page's data, all but the trees and the map. Numbers of strings are indices into the
//! page's table of strings; times are in microseconds.

use serde_json::{Value, json};
use wcprof_findings::{Basis, Evidence, Finding, gain_sentence, share_sentence};
use wcprof_profile::model::Profile;
use wcprof_profile::{Cores, Group, GroupBy, View};

use super::nodes::micros;
use super::strings::Strings;
use crate::group::group_name;
use crate::headline::{Headline, recorded_by};

/// Most processes, notes and classes of daemons that a page names.
const MAX_NAMED: usize = 40;

pub(super) fn headline(h: &Headline<'_>, title: &str, strings: &mut Strings) -> Value {
    let (header, stats, time) = (&h.profile.header, &h.profile.stats, &h.profile.time);
    let mut clean = |texts: &[String]| -> Vec<String> {
        let some = texts.iter().take(MAX_NAMED);
        some.map(|text| strings.clean(text)).collect()
    };
    let (processes, notes) = (clean(&h.processes), clean(&header.notes));
    let losses = &h.losses;
    let truncated = losses.truncated.iter();
    let mut value = json!({
        "title": strings.clean(title),
        "processes": processes,
        "n_processes": h.processes.len(),
        "duration_us": micros(h.profile.whole_ns()),
        "extent_us": micros(stats.duration.0),
        "window_us": time.window_ns().map(|(from, to)| (micros(from), micros(to))),
        "n_threads": h.n_threads,
        "n_samples": h.n_samples,
        "n_timer_samples": h.n_timer_samples,
        "rate_hz": header.rate_hz,
        "recorded_by": strings.clean(&recorded_by(&header.engine)),
        "host": strings.clean(&header.host),
        "kernel": strings.clean(&header.kernel),
        "n_cpus": header.n_cpus,
        "started_unix_ms": header.started_unix_ns / 1_000_000,
        "recorded_version": strings.clean(&header.wcprof_version),
        "version": env!("CARGO_PKG_VERSION"),
        "states_us": h.states.map(micros),
        "n_torn": losses.n_torn,
        "n_late": losses.n_late,
        "n_lost": losses.n_lost,
        "n_truncated": losses.n_truncated(),
        "truncated": truncated.map(|(end, n)| (end.reason(), n)).collect::<Vec<_>>(),
        "n_frames": losses.n_frames,
        "n_unresolved": losses.n_unresolved,
        "cut": losses.cut.as_ref().map(|cut| strings.clean(cut)),
        "own_cpu_us": micros(stats.own_cpu_ns),
        "notes": notes,
    });
    if header.n_snapshots > 0 {
        value["n_snapshots"] = header.n_snapshots.into();
    }
    value
}

/// `flags`: those that chose the part of the trace.
pub(super) fn view(view: &View, flags: &[String], strings: &mut Strings) -> Value {
    let around = view.around.as_ref();
    // The function, and whether its callers are shown.
    let around = around.map(|a| (strings.clean(&a.function.0), view.is_leaf_first()));
    let flags = flags.iter().take(MAX_NAMED).map(|f| strings.clean(f));
    json!({
        "by": match view.by {
            GroupBy::Cgroup => json!("control group"),
            by => json!(by),
        },
        "idle": view.idle,
        "min_percent": view.min_percent,
        "around": around,
        "flags": flags.collect::<Vec<_>>(),
    })
}

pub(super) fn group(profile: &Profile, group: &Group, strings: &mut Strings) -> Value {
    let name = group_name(profile, group).unwrap_or_else(|| "all threads".to_owned());
    let threads = || group.threads.iter().map(|&t| &profile.threads[t]);
    let mut processes: Vec<usize> = threads().map(|t| t.process).collect();
    processes.sort_unstable();
    processes.dedup();
    let shown = processes.iter().take(3);
    let shown = shown.filter_map(|&p| profile.processes.get(p));
    json!({
        "name": strings.id(&name),
        "n_threads": threads().filter(|t| t.tid.0 != 0).count(),
        "processes": shown
            .map(|p| strings.id(&format!("{} (pid {})", p.title, p.pid)))
            .collect::<Vec<_>>(),
        "n_processes": processes.len(),
        "states_us": group.states.map(micros),
        "shown_us": micros(group.weight),
        "n_samples": group.n_samples,
    })
}

/// A finding; `group` is the group of its pool, if the view has one.
pub(super) fn finding(finding: &Finding, group: Option<usize>, strings: &mut Strings) -> Value {
    let (matched, wall, states) = match &finding.basis {
        Basis::Time(share) => (share.matched_ns, share.wall_ns, share.states.as_slice()),
        _ => (0, 0, &[][..]),
    };
    // The share of time as a sentence, or the settings found.
    let basis: Vec<String> = match &finding.basis {
        Basis::Setting(found) | Basis::Limit(found) => {
            let settings = found.settings.iter();
            let text = settings.map(|s| format!("{}: {} [{}]", s.name, s.value, s.origin));
            text.collect()
        }
        _ => share_sentence(finding).into_iter().collect(),
    };
    let basis: Vec<u32> = basis.iter().map(|text| strings.id(text)).collect();
    let process = &finding.process;
    let gain = gain_sentence(finding).unwrap_or_default();
    let process = format!("{process} (pid {})", finding.pid);
    let sources = finding.sources.iter();
    let sources = sources.map(|s| format!("\"{}\": {}", s.report, s.figure.trim()));
    json!({
        "rule": strings.id(&finding.rule),
        "title": strings.id(&finding.title),
        "gives_back": finding.gain.map(|gain| gain.text()),
        "process": strings.id(&process),
        "pools": finding.pools.iter().map(|p| strings.id(p)).collect::<Vec<_>>(),
        "basis": basis,
        "matched_us": micros(matched),
        "wall_us": micros(wall),
        "states": states.iter().map(|s| *s as usize).collect::<Vec<_>>(),
        "evidence": finding.evidence.iter().map(|e| evidence(e, strings)).collect::<Vec<_>>(),
        "explanation": strings.id(finding.explanation.trim()),
        "advice": strings.id(finding.advice.trim()),
        "gain": strings.id(&gain),
        "sources": sources.map(|s| strings.id(&s)).collect::<Vec<_>>(),
        "verify": strings.id(finding.verify.trim()),
        "group": group,
    })
}

fn evidence(evidence: &Evidence, strings: &mut Strings) -> Value {
    let heading = strings.id(&evidence.heading);
    // Depth, percent if it is a share, microseconds, name, module.
    let lines = evidence.lines.iter().map(|line| {
        let percent = line
            .percent
            .map(|percent| (percent * 100.0).round() / 100.0);
        let (name, module) = (strings.id(&line.name), strings.id(&line.module));
        (line.depth, percent, micros(line.weight_ns), name, module)
    });
    let lines: Vec<_> = lines.collect();
    json!({"heading": heading, "n_cut": evidence.n_cut, "lines": lines})
}

pub(super) fn cores(cores: &Cores, strings: &mut Strings) -> Value {
    let mut classes = Vec::new();
    for class in cores.classes.iter().take(MAX_NAMED) {
        // Name, pid, host, cores, threads, and why it ended before the recording.
        let processes = class.processes.iter().take(MAX_NAMED).map(|p| {
            let ended = p.ended.as_ref().map(|e| strings.clean(e));
            let (title, host) = (strings.clean(&p.title), strings.clean(&p.host));
            (title, p.pid, host, p.cores, p.n_threads, ended)
        });
        let processes: Vec<_> = processes.collect();
        classes.push(json!({
            "name": strings.clean(&class.class),
            "cores": class.cores,
            "us_per_op": class.us_per_op,
            "n_threads": class.n_threads,
            "processes": processes,
            "n_processes": class.processes.len(),
        }));
    }
    let ratios = cores.ratios.iter().take(MAX_NAMED);
    let ratios = ratios.map(|r| (strings.clean(&r.class), strings.clean(&r.to), r.ratio));
    json!({
        "cores": cores.cores,
        "us_per_op": cores.us_per_op,
        "classes": classes,
        "ratios": ratios.collect::<Vec<_>>(),
    })
}
