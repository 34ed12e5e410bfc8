//! Limits: CPU and memory of control groups, descriptors.

use wcprof_findings::quota_text;
use wcprof_text::{and_more, count};

use crate::report::{Out, setting};

const ID_THROTTLED: &str = "cgroup-throttled";
const ID_MEMORY_HIGH: &str = "cgroup-memory-high";
const ID_FILES: &str = "open-files";
/// Shown, never found: a kernel that does not account costs nothing.
const NAME_DELAYS: &str = "delay-accounting";
const NAME_PRESSURE: &str = "pressure";

/// Share of periods, percent, below which throttling is a rare burst.
const THROTTLED_PERCENT: u64 = 1;
const MIN_PERIODS: u64 = 100;
const FILES_PERCENT: u64 = 80;
/// Threads that are named.
const MAX_NAMES: usize = 4;

pub(super) fn check(out: &mut Out<'_>) {
    throttled(out);
    memory_high(out);
    open_files(out);
    accounts(out);
}

/// What the kernel accounts of waiting beside the threads' own times.
fn accounts(out: &mut Out<'_>) {
    let host = &out.snapshot.host;
    match host.delay_accounting {
        Some(true) => out.passed(NAME_DELAYS, "kernel.task_delayacct is 1"),
        Some(false) => out.unknown(
            NAME_DELAYS,
            "how long threads waited for block devices is not accounted: kernel.task_delayacct is 0, as since Linux 5.14",
            "`sysctl kernel.task_delayacct=1`; it counts from then on",
        ),
        None => {}
    }
    match host.pressure {
        Some(true) => out.passed(NAME_PRESSURE, "/proc/pressure can be read"),
        Some(false) => out.unknown(
            NAME_PRESSURE,
            "stall times (PSI) are not accounted: /proc/pressure is not there, or cannot be read",
            "`psi=1` on the kernel's command line",
        ),
        None => {}
    }
}

fn throttled(out: &mut Out<'_>) {
    let changes = &out.observed.limit_changes;
    if !changes.is_empty() {
        let shown: Vec<&str> = changes.iter().map(String::as_str).take(MAX_NAMES).collect();
        let more = and_more(changes.len().saturating_sub(MAX_NAMES));
        let text = format!(
            "limits changed during the recording: {}{more}",
            shown.join("; ")
        );
        let next = "record again while groups and limits stay as they are";
        return out.unknown(ID_THROTTLED, text, next);
    }
    let process = &out.snapshot.process;
    let (mut throttled, mut limits) = (Vec::new(), Vec::new());
    let mut was_throttled = false;
    for (place, group) in (0..).zip(&process.cgroups) {
        let Some(text) = quota_text(group, " since the group was made") else {
            continue;
        };
        let (n, of) = (group.n_throttled.unwrap_or(0), group.n_periods.unwrap_or(0));
        was_throttled |= n > 0;
        if of >= MIN_PERIODS && n.saturating_mul(100) / of >= THROTTLED_PERCENT {
            let of = threads_in(out, place);
            throttled.push(setting(
                &group.path,
                text.clone() + &of,
                "cpu.max, cpu.stat",
            ));
        }
        limits.push(format!("{}: {text}", group.path));
    }
    let n_more = match process.n_more_cgroups {
        0 => String::new(),
        n => format!("; {} were not read", count(n as usize, "more group")),
    };
    let seen = match limits.is_empty() {
        true if process.cgroups.is_empty() => String::new(),
        true => {
            let n = count(process.cgroups.len(), "group");
            format!("no CPU limit in {n} of its threads and above{n_more}")
        }
        false => limits.join(", ") + &n_more,
    };
    // What happened during a recording is a finding of the rules on time; what happened before it passes no check.
    if !out.observed.has_accounts || !was_throttled {
        out.found_or_passed(ID_THROTTLED, throttled, seen);
    }
}

/// `; 2 of 5 threads: CPU 0/KVM, CPU 1/KVM`, of those in a group; nothing where all are.
fn threads_in(out: &Out<'_>, place: u32) -> String {
    let threads = &out.snapshot.process.threads;
    let inside = threads.iter().filter(|t| t.groups.contains(&place));
    let mut names: Vec<&str> = inside.map(|t| t.comm.as_str()).collect();
    let n = names.len();
    if n == 0 || n == threads.len() {
        return String::new();
    }
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().take(MAX_NAMES).copied();
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = and_more(names.len().saturating_sub(MAX_NAMES));
    format!("; {n} of {}: {shown}{more}", count(threads.len(), "thread"))
}

fn memory_high(out: &mut Out<'_>) {
    let high = out.snapshot.process.cgroups.iter().filter_map(|group| {
        let n = group.n_memory_high.filter(|n| *n > 0)?;
        Some(setting(&group.path, format!("{n} times"), "memory.events"))
    });
    let high: Vec<_> = high.collect();
    if !out.observed.has_accounts {
        out.found(ID_MEMORY_HIGH, high);
    }
}

fn open_files(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    if let Some((open, limit)) = process.fds.as_ref().and_then(|f| Some((f.n, f.limit?))) {
        let text = format!("{open} of {limit}");
        if limit > 0 && open.saturating_mul(100) / limit >= FILES_PERCENT {
            out.found(ID_FILES, [setting("open files", text, "fd, limits")]);
        } else if open > 0 {
            out.passed(ID_FILES, text);
        }
    }
}
