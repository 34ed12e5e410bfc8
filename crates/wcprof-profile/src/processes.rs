//! Processes, modules and threads of a trace to those of a profile.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use wcprof_trace::model::{Module, Process, ProcessId, Tables, Thread};
use wcprof_types::{Pid, TimeNs, ceph_fsid, process_title, program_name};

use crate::accounts::accounts;
use crate::counters::growth;
use crate::model::{ProfileModule, ProfileProcess, ProfileThread, TimeAxis};
use crate::rules::Rules;
use crate::slices::Parts;

/// The name of the thread (tid 0) that holds the CPU time of threads that exited unseen.
const EXITED: &str = "[exited threads, not sampled]";

/// Length of the recording, ns; of a merged trace, of all recordings together.
pub(crate) fn recorded_ns(tables: &Tables) -> u64 {
    match tables.origins.sources.as_slice() {
        [] => tables.stats.duration.0,
        sources => {
            let durations = sources.iter().map(|source| source.duration.0);
            durations.fold(0, u64::saturating_add)
        }
    }
}

/// Parts of `start..end` in which nothing was recorded, since `start`.
pub(crate) fn gaps(tables: &Tables, start: u64, end: u64) -> Vec<(u64, u64)> {
    let all = tables.gaps().into_iter();
    let inside = all.map(|(from, to)| {
        (
            from.0.clamp(start, end) - start,
            to.0.clamp(start, end) - start,
        )
    });
    inside.filter(|(from, to)| from < to).collect()
}

/// Times between the recordings of each process.
fn process_gaps(tables: &Tables) -> Vec<Parts> {
    let of = |parts: Vec<(TimeNs, TimeNs)>| {
        let between = parts.windows(2).map(|two| (two[0].1.0, two[1].0.0));
        Parts::new(between.filter(|(from, to)| from < to))
    };
    tables.recorded_parts().into_iter().map(of).collect()
}

/// Whether a process stands for several.
fn is_folded(tables: &Tables, id: ProcessId) -> bool {
    tables.origins.folded.get(&id).is_some_and(|n| *n > 1)
}

/// Characters of a cluster's id that are shown.
const FSID_CHARS: usize = 8;

/// Processes in the order of the trace.
pub(crate) fn processes(tables: &Tables, time: &TimeAxis, rules: &Rules) -> Vec<ProfileProcess> {
    let (from, to) = match time.is_window {
        true => (time.start.0, time.end.0),
        false => (0, u64::MAX),
    };
    let parts = tables.recorded_parts().into_iter();
    let parts = parts.map(|parts| Parts::new(parts.iter().map(|(start, end)| (start.0, end.0))));
    let parts: Vec<Parts> = parts.collect();
    let mut counters = growth(&tables.origins.counters, &parts, time);
    let accounts: Vec<Arc<_>> = accounts(tables, time).into_iter().map(Arc::new).collect();
    let of = |(id, process): (ProcessId, &Process)| {
        let Process { comm, cmdline, .. } = process;
        let ended = tables.origins.process_ends.get(&id);
        ProfileProcess {
            pid: process.pid,
            comm: comm.clone(),
            cgroup: process.cgroup.clone(),
            title: match tables.origins.folded.get(&id) {
                Some(n) if is_folded(tables, id) => {
                    format!("{} ×{n}", process_title(comm, cmdline))
                }
                _ => process_title(comm, cmdline),
            },
            class: rules.class(comm, program_name(cmdline)).to_owned(),
            host: tables.host_of(id).to_owned(),
            is_folded: is_folded(tables, id),
            fsid: ceph_fsid(cmdline, &process.cgroup).unwrap_or_default(),
            recorded_ns: parts[id.0 as usize].overlap(from, to),
            accounts: (accounts.get(tables.source_at(id).unwrap_or(0)))
                .cloned()
                .unwrap_or_default(),
            ended: ended.map(|end| end.reason.clone()),
            counters: counters.remove(&id).unwrap_or_default(),
        }
    };
    let ids = (0..).map(ProcessId);
    let mut processes: Vec<ProfileProcess> = ids.zip(&tables.processes).map(of).collect();
    tell_clusters_apart(&mut processes);
    processes
}

/// The ids of OSDs repeat over clusters: those that several clusters have get the begin of their cluster's.
fn tell_clusters_apart(processes: &mut [ProfileProcess]) {
    let mut clusters: HashMap<String, BTreeSet<String>> = HashMap::new();
    for process in processes.iter().filter(|process| !process.fsid.is_empty()) {
        let clusters = clusters.entry(process.title.clone()).or_default();
        clusters.insert(process.fsid.clone());
    }
    for process in processes {
        let n_clusters = clusters.get(&process.title).map_or(0, BTreeSet::len);
        if n_clusters > 1 && !process.fsid.is_empty() {
            let begin: String = process.fsid.chars().take(FSID_CHARS).collect();
            process.title = format!("{} of {begin}", process.title);
        }
    }
}

/// Modules, distinct by file name and build-id, in order.
pub(crate) fn modules(tables: &Tables) -> Vec<ProfileModule> {
    let modules = tables.modules.iter().map(|module| ProfileModule {
        name: module.file_name().to_owned(),
        build_id: module.build_id.clone(),
        path: module.path.clone(),
    });
    let mut modules: Vec<_> = modules.collect();
    modules.sort();
    modules.dedup_by(|a, b| (&a.name, &a.build_id) == (&b.name, &b.build_id));
    modules
}

/// By module of the tables: its index in [`modules`].
pub(crate) fn images(tables: &Tables) -> Vec<usize> {
    let known = modules(tables);
    let at = |module: &Module| {
        let key = (module.file_name(), &module.build_id);
        known.partition_point(|m| (m.name.as_str(), &m.build_id) < key)
    };
    tables.modules.iter().map(at).collect()
}

/// Threads in the order of the trace; all are in pool 0.
pub(crate) fn threads(tables: &Tables, time: &TimeAxis) -> Vec<ProfileThread> {
    let gaps = process_gaps(tables);
    let of = |thread: &Thread| {
        let is_folded = is_folded(tables, thread.process);
        let process = tables.processes.get(thread.process.0 as usize);
        let gaps = gaps.get(thread.process.0 as usize);
        let recorded = |start: TimeNs, end: TimeNs| {
            let gaps = gaps.map_or(0, |gaps| gaps.overlap(start.0, end.0));
            end.0.saturating_sub(start.0).saturating_sub(gaps)
        };
        let (mut start, mut end) = (thread.start, thread.end);
        if time.is_window {
            (start, end) = (start.max(time.start), end.min(time.end));
        }
        let observed_ns = recorded(start, end);
        ProfileThread {
            process: thread.process.0 as usize,
            pid: process.map_or(Pid(0), |p| p.pid),
            process_comm: process.map_or_else(String::new, |p| p.comm.clone()),
            tid: thread.tid,
            comm: match thread.tid.0 {
                0 => EXITED.to_owned(),
                _ => thread.name().to_owned(),
            },
            pool: 0,
            n_ticks: match recorded(thread.start, thread.end) {
                0 => thread.n_ticks,
                whole => {
                    let ticks = u128::from(thread.n_ticks) * u128::from(observed_ns);
                    (ticks / u128::from(whole)) as u64
                }
            },
            // What stands for several has no lifetime of its own: it is found by the weights.
            observed_ns: match is_folded || thread.tid.0 == 0 {
                true => 0,
                false => observed_ns,
            },
        }
    };
    tables.threads.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an OSD's cluster is shown where two clusters have one of its id, and only there.
    #[test]
    fn clusters() {
        let process = |id: &str, fsid: &str| Process {
            comm: "ceph-osd".into(),
            cmdline: ["ceph-osd", "--id", id, "--fsid", fsid]
                .map(str::to_owned)
                .into(),
            ..Process::default()
        };
        let trace = |of: [(&str, &str); 3]| Tables {
            processes: of.map(|(id, fsid)| process(id, fsid)).into(),
            ..Tables::default()
        };
        let [a, b] = [
            "a1b2c3d4-0000-4000-8000-000000000001",
            "e5f6a7b8-0000-4000-8000-000000000002",
        ];
        let titles = |of| {
            let time = TimeAxis {
                start: TimeNs(0),
                end: TimeNs(1),
                slice_ns: 1,
                is_window: false,
                recorded_ns: 1,
                gaps: Vec::new(),
                all_gaps_ns: 0,
            };
            let all = processes(&trace(of), &time, &Rules::builtin().unwrap());
            all.into_iter()
                .map(|process| process.title)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            titles([("3", a), ("3", b), ("4", b)]),
            ["osd.3 of a1b2c3d4", "osd.3 of e5f6a7b8", "osd.4"]
        );
        assert_eq!(
            titles([("3", a), ("3", a), ("4", b)]),
            ["osd.3", "osd.3", "osd.4"]
        );
    }
}
