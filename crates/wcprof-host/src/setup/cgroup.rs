//! Control groups of a process and the ones above them, to CPU limits, throttling, memory limits.

use wcprof_types::snapshot::Cgroup;

use crate::procfs::cgroups;

use super::tree::{Absent, Tree, leading_number};

/// Groups above a process's own that are read.
const MAX_LEVELS: usize = 32;
/// Where version 2 is mounted: alone, or beside version 1.
const V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Where the CPU controller of version 1 is.
const V1: [&str; 3] = [
    "/sys/fs/cgroup/cpu,cpuacct",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/cpuacct,cpu",
];

pub(super) fn read(tree: &Tree, dir: &str) -> Vec<Cgroup> {
    let path = format!("{dir}/cgroup");
    let Some(text) = tree.long_text(&path, 1 << 16, Absent::Noted) else {
        return Vec::new();
    };
    let mut groups = Vec::new();
    for (controllers, group) in cgroups(&text) {
        if group.contains("/..") {
            tree.left_out(
                &path,
                "the group is outside of wcprof's own cgroup namespace",
            );
        } else if controllers.is_empty() {
            let is_mounted = |m: &&&str| tree.text(&format!("{m}/cgroup.controllers")).is_some();
            if let Some(mount) = V2.iter().find(is_mounted) {
                groups.extend(levels(group).filter_map(|g| version2(tree, mount, g)));
            }
        } else if controllers.split(',').any(|c| c == "cpu")
            && let Some(mount) = V1.iter().find(|m| tree.has_folder(m))
        {
            groups.extend(levels(group).filter_map(|g| version1(tree, mount, g)));
        }
    }
    groups
}

/// The group itself, then those above it, without the root.
fn levels(group: &str) -> impl Iterator<Item = &str> {
    let parent = |group: &str| group.rfind('/').unwrap_or(0);
    std::iter::successors(Some(group), move |group| group.get(..parent(group)))
        .take_while(|group| group.len() > 1)
        .take(MAX_LEVELS)
}

/// A number of a file of `key number` lines.
fn count(text: Option<&str>, key: &str) -> Option<u64> {
    text?.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

fn version2(tree: &Tree, mount: &str, group: &str) -> Option<Cgroup> {
    let file = |name: &str| tree.text(&format!("{mount}{group}/{name}"));
    let (max, stat, events) = (file("cpu.max"), file("cpu.stat"), file("memory.events"));
    // `max 100000` or `200000 100000`: quota and period.
    let (max, stat) = (max.as_deref(), stat.as_deref());
    has_limit(Cgroup {
        path: group.to_owned(),
        quota_us: max.and_then(leading_number),
        period_us: max.and_then(|m| m.split_once(' ')?.1.parse().ok()),
        n_periods: count(stat, "nr_periods"),
        n_throttled: count(stat, "nr_throttled"),
        throttled_us: count(stat, "throttled_usec"),
        n_memory_high: count(events.as_deref(), "high"),
        cpus: file("cpuset.cpus.effective").filter(|c| !c.is_empty()),
    })
}

fn version1(tree: &Tree, mount: &str, group: &str) -> Option<Cgroup> {
    let path = |name: &str| format!("{mount}{group}/{name}");
    let stat = tree.text(&path("cpu.stat"));
    let stat = stat.as_deref();
    has_limit(Cgroup {
        path: group.to_owned(),
        // -1: no limit.
        quota_us: tree.number(&path("cpu.cfs_quota_us")),
        period_us: tree.number(&path("cpu.cfs_period_us")),
        n_periods: count(stat, "nr_periods"),
        n_throttled: count(stat, "nr_throttled"),
        throttled_us: count(stat, "throttled_time").map(|ns| ns / 1000),
        ..Cgroup::default()
    })
}

/// Groups with neither a limit nor a count are left out.
fn has_limit(group: Cgroup) -> Option<Cgroup> {
    let some = group.quota_us.is_some()
        || group.n_periods.is_some()
        || group.n_memory_high.is_some()
        || group.cpus.is_some();
    some.then_some(group)
}
