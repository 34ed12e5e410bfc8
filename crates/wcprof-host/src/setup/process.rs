//! `/proc/PID` to the setup of a process.

use std::collections::BTreeMap;

use wcprof_types::snapshot::{ProcessSetup, ThreadSetup, limits};
use wcprof_types::{Pid, Tid, redact_args, redact_variable};

use super::accounts::stat_field;
use super::cgroup::Groups;
use super::memory::Walk;
use super::tree::{Absent, Tree, field, fields, first_bytes};
use super::{ceph, files, libraries, memory};
use crate::procfs::{StoppedTask, parse_stat, parse_task_state};

const MAX_ENVIRON: usize = 1 << 20;
/// Processes whose names are looked at.
const MAX_PROCESSES: usize = 1 << 16;

/// Lines of `status` that checks use.
const STATUS: [&str; 16] = [
    "TracerPid",
    "CoreDumping",
    "Uid",
    "VmSize",
    "VmHWM",
    "VmRSS",
    "RssAnon",
    "RssFile",
    "RssShmem",
    "VmSwap",
    "HugetlbPages",
    "THP_enabled",
    "Threads",
    "Cpus_allowed_list",
    "Mems_allowed_list",
    "NSpid",
];

pub(super) fn read(tree: &Tree, pid: Pid, walk: Walk) -> ProcessSetup {
    let mut setup = ProcessSetup {
        pid,
        comm: tree.text(&format!("/proc/{pid}/comm")).unwrap_or_default(),
        ..ProcessSetup::default()
    };
    // Once its main thread has ended, all but the name is in the folder of another one.
    let pid = tree.live_task(pid);
    let dir = format!("/proc/{pid}");
    let raw_args = cmdline(tree, pid, &mut setup);
    setup.cmdline = redact_args(&setup.comm, &raw_args);
    setup.environ = environ(tree, pid);
    if let Some(status) = tree.long_text(&format!("{dir}/status"), 1 << 16, Absent::Noted) {
        let kept = fields(&status).filter(|(key, _)| STATUS.contains(key));
        setup.status = kept.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    }
    let mut groups = Groups::new(tree);
    // The process's own first, which are those of most threads.
    groups.of(&format!("{dir}/cgroup"), Absent::Noted);
    threads(tree, &dir, &mut groups, &mut setup);
    (setup.cgroups, setup.n_more_cgroups) = (groups.found, groups.n_more);
    libraries::read(tree, pid, &mut setup);
    files::read(tree, &dir, &mut setup);
    memory::read(tree, pid, walk, &mut setup);
    setup.ceph = ceph::read(tree, pid, &raw_args, &setup);
    setup
}

/// The arguments with their secrets, which stay in here.
pub(super) fn cmdline(tree: &Tree, pid: Pid, setup: &mut ProcessSetup) -> Vec<String> {
    let first = |file| first_bytes(file, limits::CMDLINE);
    let Some((bytes, mut cut)) = tree.parse_locked(pid, "cmdline", Absent::Noted, first) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.split_terminator('\0').collect();
    cut |= all.len() > limits::ARGS || all.iter().any(|arg| arg.len() > limits::ARG);
    let kept = all.iter().take(limits::ARGS);
    let args = kept.map(|arg| arg[..arg.floor_char_boundary(limits::ARG)].to_owned());
    let args = args.collect();
    if cut {
        tree.left_out(
            &format!("/proc/{pid}/cmdline"),
            "too long; the rest was not read",
        );
    }
    setup.cmdline_cut = cut;
    args
}

pub(super) fn environ(tree: &Tree, pid: Pid) -> Option<BTreeMap<String, String>> {
    let first = |file| first_bytes(file, MAX_ENVIRON);
    let (bytes, _) = tree.parse_locked(pid, "environ", Absent::Noted, first)?;
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    let kept = pairs.filter_map(|(name, value)| {
        let end = value.floor_char_boundary(limits::ARG);
        Some((name.to_owned(), redact_variable(name, &value[..end])?))
    });
    Some(kept.collect())
}

fn threads(tree: &Tree, dir: &str, groups: &mut Groups<'_>, setup: &mut ProcessSetup) {
    let Some(tids) = tree.list(&format!("{dir}/task"), Absent::Noted) else {
        return;
    };
    setup.n_more_threads = tids.len().saturating_sub(limits::THREADS) as u64;
    // A thread that exited meanwhile is left out.
    let threads = tids.iter().take(limits::THREADS);
    let threads = threads.filter_map(|tid| {
        let dir = format!("{dir}/task/{tid}");
        let mut thread = thread(tree, &dir, tid)?;
        thread.groups = groups.of(&format!("{dir}/cgroup"), Absent::Fine);
        Some(thread)
    });
    setup.threads.extend(threads);
}

fn thread(tree: &Tree, dir: &str, tid: &str) -> Option<ThreadSetup> {
    let status = tree.text(&format!("{dir}/status"))?;
    let stat = tree.text(&format!("{dir}/stat")).unwrap_or_default();
    let task = StoppedTask {
        folder: dir,
        read: &|path| tree.text(path),
    };
    let stop = parse_task_state(stat.as_bytes()).and_then(|state| task.cause_now(state));
    Some(ThreadSetup {
        stop: stop.map(|cause| cause.name().to_owned()),
        tid: Tid(tid.parse().ok()?),
        comm: parse_stat(&stat)
            .map(|stat| stat.comm)
            .or_else(|| tree.text(&format!("{dir}/comm")))
            .or_else(|| field(&status, "Name").map(str::to_owned))?,
        cpus: field(&status, "Cpus_allowed_list")
            .unwrap_or_default()
            .to_owned(),
        last_cpu: stat_field(&stat, 39).and_then(|cpu| cpu.try_into().ok()),
        groups: Vec::new(),
    })
}

/// What the names of other processes show: kernel threads of `vhost` that serve this one, and whether
/// irqbalance runs (`None` when the processes could not be listed).
pub(super) fn others(tree: &Tree, pid: Pid) -> (Vec<ThreadSetup>, Option<bool>) {
    let Some(names) = tree.list("/proc", Absent::Noted) else {
        return (Vec::new(), None);
    };
    let (mut vhost, mut irqbalance) = (Vec::new(), false);
    let vhost_name = format!("vhost-{pid}");
    let pids = names.iter().filter(|n| n.parse::<u32>().is_ok());
    for other in pids.take(MAX_PROCESSES) {
        let dir = format!("/proc/{other}");
        match tree.text(&format!("{dir}/comm")) {
            Some(comm) if comm == "irqbalance" => irqbalance = true,
            Some(comm) if comm == vhost_name => vhost.extend(thread(tree, &dir, other)),
            _ => {}
        }
    }
    (vhost, Some(irqbalance))
}
