//! Control groups of a process, and the ones above them: CPU limits, throttling, memory held up.

use wcprof_types::snapshot::Cgroup;

use super::tree::{Absent, Tree};
use super::{exists, leading_number};

/// Levels above a process's group that are looked at.
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
    for line in text.lines() {
        // `hierarchy:controllers:path` (cgroups(7)).
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if group.contains("/..") {
            tree.left_out(
                &path,
                "the group lies outside of wcprof's own cgroup namespace",
            );
            continue;
        }
        if controllers.is_empty() {
            let mount = V2
                .iter()
                .find(|m| exists(tree, &format!("{m}/cgroup.controllers")) || has_v2(tree, m));
            if let Some(mount) = mount {
                levels(group).for_each(|g| groups.extend(version2(tree, mount, g)));
            }
        } else if controllers.split(',').any(|c| c == "cpu")
            && let Some(mount) = V1.iter().find(|m| exists(tree, m))
        {
            levels(group).for_each(|g| groups.extend(version1(tree, mount, g)));
        }
    }
    groups
}

fn has_v2(tree: &Tree, mount: &str) -> bool {
    tree.text(&format!("{mount}/cgroup.controllers")).is_some()
}

/// The group itself, then those above it, without the root.
fn levels(group: &str) -> impl Iterator<Item = &str> {
    let parent = |group: &str| group.rfind('/').unwrap_or(0);
    std::iter::successors(Some(group), move |group| group.get(..parent(group)))
        .take_while(|group| group.len() > 1)
        .take(MAX_LEVELS)
}

/// A number of a file of `key number` lines.
fn field(text: Option<&String>, key: &str) -> Option<u64> {
    text?.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

fn version2(tree: &Tree, mount: &str, group: &str) -> Option<Cgroup> {
    let file = |name: &str| tree.text(&format!("{mount}{group}/{name}"));
    let max = file("cpu.max");
    let (stat, events) = (file("cpu.stat"), file("memory.events"));
    let level = Cgroup {
        path: group.to_owned(),
        quota_us: max.as_deref().and_then(leading_number),
        period_us: max
            .as_deref()
            .and_then(|m| m.split_once(' ')?.1.parse().ok()),
        n_periods: field(stat.as_ref(), "nr_periods"),
        n_throttled: field(stat.as_ref(), "nr_throttled"),
        throttled_us: field(stat.as_ref(), "throttled_usec"),
        n_memory_high: field(events.as_ref(), "high"),
        cpus: file("cpuset.cpus.effective").filter(|c| !c.is_empty()),
    };
    tells(level)
}

fn version1(tree: &Tree, mount: &str, group: &str) -> Option<Cgroup> {
    let file = |name: &str| tree.text(&format!("{mount}{group}/{name}"));
    let stat = file("cpu.stat");
    let level = Cgroup {
        path: group.to_owned(),
        // -1: no limit.
        quota_us: file("cpu.cfs_quota_us").and_then(|q| q.parse().ok()),
        period_us: file("cpu.cfs_period_us").and_then(|p| p.parse().ok()),
        n_periods: field(stat.as_ref(), "nr_periods"),
        n_throttled: field(stat.as_ref(), "nr_throttled"),
        throttled_us: field(stat.as_ref(), "throttled_time").map(|ns| ns / 1000),
        ..Cgroup::default()
    };
    tells(level)
}

/// A group in which there is something to see.
fn tells(level: Cgroup) -> Option<Cgroup> {
    let some = level.quota_us.is_some()
        || level.n_periods.is_some()
        || level.n_memory_high.is_some()
        || level.cpus.is_some();
    some.then_some(level)
}
