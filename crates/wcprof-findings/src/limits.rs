//! Limits of control groups that held threads up during a recording, by what the kernel counted of them.
//!
//! The kernel's times of a group are sums over CPUs, and its counts are of all of its threads, also of those that are not
//! recorded: no share of a pool's time is made of them.

use std::collections::BTreeMap;

use wcprof_profile::model::Profile;
use wcprof_profile::{AccountsChange, GroupChange};
use wcprof_text::{bytes, count, duration};
use wcprof_types::cgroup::{BlockIo, Cgroup};

use crate::finding::{Basis, Finding, Setting, SettingsFound};
use crate::matching::any_glob;
use crate::pressure::pressure;
use crate::rule::{GroupLimit, Rule};
use crate::totals::Index;

/// Groups that a finding names.
const MAX_GROUPS: usize = 8;
/// One throttled period may be a start's.
const MIN_THROTTLED: u64 = 2;

/// A finding for each process with threads in groups whose limit was reached, as the rule says.
pub(crate) fn limits_reached(index: &Index<'_>, rule: &Rule) -> Vec<Finding> {
    let Some(limit) = rule.matches.limit else {
        return Vec::new();
    };
    let profile = index.profile;
    let mut findings = Vec::new();
    for (at, process) in profile.processes.iter().enumerate() {
        let Some(change) = &process.accounts.change else {
            continue;
        };
        if !any_glob(&rule.matches.processes, &process.comm) {
            continue;
        }
        let of_time = of_time(change, profile);
        let mut pools: Vec<&str> = Vec::new();
        let mut settings = Vec::new();
        for (place, of) in pools_by_group(profile, at, change) {
            let Some(group) = change.groups.get(place as usize) else {
                continue;
            };
            let reached = reached(limit, group, (change.length_ns, &of_time));
            let Some((text, origin)) =
                reached.and_then(|(part, text)| (part >= rule.threshold.percent).then_some(text))
            else {
                continue;
            };
            let remark = group.fate.remark();
            let remark = remark.map_or_else(String::new, |remark| format!("; {remark}"));
            settings.push(Setting {
                name: group.group.path.clone(),
                value: format!("{text}{remark}; threads: {}", of.join(", ")),
                origin: origin.to_owned(),
            });
            for pool in of {
                if !pools.contains(&pool) {
                    pools.push(pool);
                }
            }
        }
        settings.truncate(MAX_GROUPS);
        if settings.is_empty() {
            continue;
        }
        let basis = Basis::Limit(SettingsFound {
            settings,
            n_threads: None,
        });
        let places = (0..profile.pools.len()).filter(|&place| {
            let pool = &profile.pools[place];
            pool.process == at && pools.contains(&pool.name.as_str())
        });
        let places: Vec<usize> = places.collect();
        let evidence = rule.pressure.and_then(|of| pressure(profile, &places, of));
        findings.push(Finding {
            evidence: evidence.into_iter().collect(),
            pools: pools.into_iter().map(str::to_owned).collect(),
            ..Finding::of_rule(rule, profile, at, basis)
        });
    }
    findings
}

/// The pools of a process by the groups that their threads are in.
fn pools_by_group<'p>(
    profile: &'p Profile,
    process: usize,
    change: &AccountsChange,
) -> BTreeMap<u32, Vec<&'p str>> {
    let mut groups: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for thread in profile.threads.iter().filter(|t| t.process == process) {
        let set = change.thread(thread.pid, thread.tid);
        for place in set.iter().flat_map(|set| &set.groups) {
            let pools = groups.entry(*place).or_default();
            let name = profile.pools[thread.pool].name.as_str();
            if !pools.contains(&name) {
                pools.push(name);
            }
        }
    }
    groups
}

/// ` during the recording`, which counts are of: where the kernel's accounts were read at its begin and its end; else how long they
/// are of, a part of it or a longer time around it.
pub(crate) fn of_time(change: &AccountsChange, profile: &Profile) -> String {
    // The readings are a little after the first tick and the last one.
    let recorded = profile.time.recorded_ns;
    if (recorded / 100 * 95..recorded.saturating_mul(3) / 2).contains(&change.length_ns) {
        " during the recording".to_owned()
    } else {
        format!(" in {} of the recording", duration(change.length_ns))
    }
}

/// How far a limit was reached, percent, with its figures and the files that they are from; `None` where there is no such limit,
/// or its counts are not known.
fn reached(
    limit: GroupLimit,
    change: &GroupChange,
    (length_ns, of_time): (u64, &str),
) -> Option<(f64, (String, &'static str))> {
    let group = &change.group;
    let is_version_1 = !group.hierarchy.is_empty();
    let seconds = length_ns as f64 / 1e9;
    let times_a_second = |n: u64| 100.0 * n as f64 / seconds.max(1e-9);
    match limit {
        GroupLimit::CpuQuota => {
            let origin = match is_version_1 {
                true => "cpu.cfs_quota_us, cpu.stat",
                false => "cpu.max, cpu.stat",
            };
            let text = quota_text(group, of_time)?;
            Some((throttled_percent(group)?, (text, origin)))
        }
        GroupLimit::BlockIo => {
            let used = group.io_limits.iter().filter_map(|(device, limits)| {
                let done = group.io.get(device)?;
                io_used(limits, done, seconds)
                    .map(|(percent, text)| (percent, format!("device {device}: {text}")))
            });
            let (percent, text) = used.max_by(|a, b| a.0.total_cmp(&b.0))?;
            let origin = match is_version_1 {
                true => "blkio.throttle.*",
                false => "io.max, io.stat",
            };
            Some((percent, (text, origin)))
        }
        GroupLimit::MemoryHigh => {
            let n = group.n_memory_high?;
            let high = bytes(group.memory_high?);
            let waited = memory_waits(group, length_ns);
            let text = format!("memory.high {high} held threads up {n} times{of_time}{waited}");
            let origin = "memory.high, memory.events, memory.pressure";
            Some((times_a_second(n), (text, origin)))
        }
        GroupLimit::MemoryMax => {
            let n = group.n_memory_max?;
            let max = bytes(group.memory_max?);
            let waited = memory_waits(group, length_ns);
            let text = format!("needed memory at its limit of {max} {n} times{of_time}{waited}");
            let origin = match is_version_1 {
                true => "memory.limit_in_bytes, memory.failcnt",
                false => "memory.max, memory.events, memory.pressure",
            };
            Some((times_a_second(n), (text, origin)))
        }
    }
}

/// `, for at least 81.2 % of that time some thread waited for memory`; empty where stall times are not known. A count alone does
/// not say what it cost. A stall time is a mean over CPUs, which is no more than the time in which some CPU had a thread that waited.
fn memory_waits(group: &Cgroup, length_ns: u64) -> String {
    let pressure = group.pressure.get("memory");
    pressure.map_or_else(String::new, |pressure| {
        let stalled_ns = pressure.some_us.saturating_mul(1000) as f64;
        let percent = 100.0 * stalled_ns / length_ns.max(1) as f64;
        format!(", for at least {percent:.1} % of that time some thread waited for memory")
    })
}

/// Percent of the periods in which a group with a quota was throttled; `None` where that is not known, or was rare.
pub(crate) fn throttled_percent(group: &Cgroup) -> Option<f64> {
    let (n, of) = (group.n_throttled?, group.n_periods?);
    let counts = group.quota_us.is_some() && of > 0 && n >= MIN_THROTTLED;
    counts.then(|| 100.0 * n as f64 / of as f64)
}

/// The quota of a group and how it was throttled: `0.20 CPUs (20 ms of each 100 ms), throttled in 177 of 187 periods, 14.2 s of
/// throttled time (added up over CPUs)`; `since` follows the periods. `None` without a quota.
pub fn quota_text(group: &Cgroup, since: &str) -> Option<String> {
    let (quota, period) = (group.quota_us?, group.period_us?.max(1));
    let mut text = format!(
        "{:.2} CPUs ({} of each {})",
        quota as f64 / period as f64,
        duration(quota.saturating_mul(1000)),
        duration(period.saturating_mul(1000)),
    );
    text += &throttled_text(group, since);
    if let Some(us) = group.throttled_us.filter(|us| *us > 0) {
        let time = duration(us.saturating_mul(1000));
        text += &format!(", {time} of throttled time (added up over CPUs)");
    }
    Some(text)
}

/// `, throttled in 177 of 187 periods`; empty where that is not known. `since` follows.
pub(crate) fn throttled_text(group: &Cgroup, since: &str) -> String {
    match (group.n_throttled, group.n_periods) {
        (Some(n), Some(of)) => {
            let of = count(of as usize, "period");
            format!(", throttled in {n} of {of}{since}")
        }
        _ => String::new(),
    }
}

/// How much of its limits a group used of a device, percent, and which.
fn io_used(limits: &BlockIo, done: &BlockIo, seconds: f64) -> Option<(f64, String)> {
    let a_second = |n: u64| n as f64 / seconds.max(1e-9);
    let of = |limit: Option<u64>, done: Option<u64>| {
        let (limit, done) = (limit.filter(|limit| *limit > 0)?, done?);
        Some((100.0 * a_second(done) / limit as f64, a_second(done), limit))
    };
    let of_bytes = [
        ("read", of(limits.read_bytes, done.read_bytes)),
        ("written", of(limits.write_bytes, done.write_bytes)),
    ];
    let of_bytes = of_bytes.into_iter().filter_map(|(what, used)| {
        let (percent, done, limit) = used?;
        let (done, limit) = (bytes(done as u64), bytes(limit));
        Some((
            percent,
            format!("{done} a second {what}, the limit is {limit} a second"),
        ))
    });
    let of_operations = [
        ("reads", of(limits.reads, done.reads)),
        ("writes", of(limits.writes, done.writes)),
    ];
    let of_operations = of_operations.into_iter().filter_map(|(what, used)| {
        let (percent, done, limit) = used?;
        Some((
            percent,
            format!("{done:.0} {what} a second, the limit is {limit} a second"),
        ))
    });
    of_bytes
        .chain(of_operations)
        .max_by(|a, b| a.0.total_cmp(&b.0))
}
