//! Control groups of threads and the ones above them, to their limits and what the kernel counts for them:
//! version 2, and the hierarchies `cpu`, `cpuset`, `memory` and `blkio` of version 1.

use std::collections::{BTreeMap, HashMap};

use wcprof_types::accounts::limits;
use wcprof_types::cgroup::{BlockIo, Cgroup, Pressure};

use super::tree::{Absent, Tree, leading_number};
use crate::procfs::cgroups;

/// The `cgroup` file of a process or thread.
pub(super) const MAX_TEXT: usize = 1 << 16;
/// Groups above a thread's own that are read.
const MAX_LEVELS: usize = 32;
/// Block devices of a group.
const MAX_DEVICES: usize = 64;
/// Where version 2 is mounted: alone, or beside version 1.
const V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Controllers of version 1 that have limits on time.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "blkio"];
/// What no limit is in version 1: the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// Groups that were read, each once.
pub(super) struct Groups<'t> {
    tree: &'t Tree,
    /// Where each hierarchy is mounted.
    mounts: HashMap<String, Option<String>>,
    /// Places by hierarchy and path; `None` for one with neither a limit nor a count.
    known: HashMap<(String, String), Option<u32>>,
    /// Places of a thread's groups by the text of its `cgroup` file, which most threads of a process share.
    texts: HashMap<String, Vec<u32>>,
    pub(super) found: Vec<Cgroup>,
    /// Groups beyond those kept.
    pub(super) n_more: u64,
}

impl<'t> Groups<'t> {
    pub(super) fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            mounts: HashMap::new(),
            known: HashMap::new(),
            texts: HashMap::new(),
            found: Vec::new(),
            n_more: 0,
        }
    }

    /// Places of the groups that a `cgroup` file of a process or thread names, each followed by those above it.
    pub(super) fn of(&mut self, path: &str, absent: Absent) -> Vec<u32> {
        let text = self.tree.long_text(path, MAX_TEXT, absent);
        text.map_or_else(Vec::new, |text| self.of_text(path, text))
    }

    /// The same of the text of such a file.
    pub(super) fn of_text(&mut self, path: &str, text: String) -> Vec<u32> {
        if let Some(places) = self.texts.get(&text) {
            return places.clone();
        }
        let mut places = Vec::new();
        for (controllers, group) in cgroups(&text) {
            let is_wanted =
                controllers.is_empty() || controllers.split(',').any(|c| CONTROLLERS.contains(&c));
            if group.contains("/..") {
                self.tree.left_out(
                    path,
                    "the group is outside of wcprof's own cgroup namespace",
                );
            } else if is_wanted {
                places.extend(levels(group).filter_map(|group| self.read(controllers, group)));
            }
        }
        if self.texts.len() < limits::GROUPS {
            self.texts.insert(text, places.clone());
        }
        places
    }

    /// Reads a group, unless it was read: its place, if it has a limit or a count.
    pub(super) fn read(&mut self, hierarchy: &str, group: &str) -> Option<u32> {
        let key = (hierarchy.to_owned(), group.to_owned());
        if let Some(place) = self.known.get(&key) {
            return *place;
        }
        if self.known.len() >= limits::GROUPS {
            self.n_more += 1;
            return None;
        }
        let folder = self.mount(hierarchy).map(|mount| mount + group);
        let cgroup = folder.and_then(|folder| {
            let limits = limits_of(self.tree, hierarchy, &folder);
            let cgroup = if hierarchy.is_empty() {
                version2(self.tree, &folder, limits)
            } else {
                version1(self.tree, &folder, limits)
            };
            has_account(&cgroup).then(|| Cgroup {
                path: group.to_owned(),
                hierarchy: hierarchy.to_owned(),
                inode: self.tree.inode(&folder),
                ..cgroup
            })
        });
        let place = cgroup.map(|cgroup| {
            self.found.push(cgroup);
            // There are at most `limits::GROUPS`.
            self.found.len() as u32 - 1
        });
        self.known.insert(key, place);
        place
    }

    /// What a group is without its counts; `None` where it is gone.
    pub(super) fn limits(&mut self, hierarchy: &str, group: &str) -> Option<Cgroup> {
        let folder = self.mount(hierarchy)? + group;
        let inode = self.tree.inode(&folder)?;
        Some(Cgroup {
            path: group.to_owned(),
            hierarchy: hierarchy.to_owned(),
            inode: Some(inode),
            ..limits_of(self.tree, hierarchy, &folder)
        })
    }

    fn mount(&mut self, hierarchy: &str) -> Option<String> {
        if let Some(mount) = self.mounts.get(hierarchy) {
            return mount.clone();
        }
        let tree = self.tree;
        let mount = if hierarchy.is_empty() {
            let is_mounted = |m: &&&str| tree.text(&format!("{m}/cgroup.controllers")).is_some();
            V2.iter().find(is_mounted).map(|m| (*m).to_owned())
        } else {
            // Of `cpu,cpuacct` one name may be a link to the other.
            let names = std::iter::once(hierarchy).chain(hierarchy.split(','));
            let mut folders = names.map(|name| format!("/sys/fs/cgroup/{name}"));
            folders.find(|folder| tree.has_folder(folder))
        };
        self.mounts.insert(hierarchy.to_owned(), mount.clone());
        mount
    }
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

/// The limits of the group whose folder this is.
fn limits_of(tree: &Tree, hierarchy: &str, folder: &str) -> Cgroup {
    if hierarchy.is_empty() {
        version2_limits(tree, folder)
    } else {
        version1_limits(tree, hierarchy, folder)
    }
}

fn version2_limits(tree: &Tree, folder: &str) -> Cgroup {
    let file = |name: &str| tree.text(&format!("{folder}/{name}"));
    let limit = |name: &str| file(name).as_deref().and_then(leading_number);
    let max = file("cpu.max");
    let max = max.as_deref();
    Cgroup {
        // `max 100000` or `200000 100000`: quota and period.
        quota_us: max.and_then(leading_number),
        period_us: max.and_then(|m| m.split_once(' ')?.1.parse().ok()),
        memory_high: limit("memory.high"),
        memory_max: limit("memory.max"),
        cpus: file("cpuset.cpus.effective").filter(|c| !c.is_empty()),
        io_limits: devices(&file("io.max").unwrap_or_default()),
        ..Cgroup::default()
    }
}

/// The limits with what the kernel counts.
fn version2(tree: &Tree, folder: &str, limits: Cgroup) -> Cgroup {
    let file = |name: &str| tree.text(&format!("{folder}/{name}"));
    let (stat, events) = (file("cpu.stat"), file("memory.events"));
    let (stat, events) = (stat.as_deref(), events.as_deref());
    let mut io = devices(&file("io.stat").unwrap_or_default());
    io.retain(|device, _| limits.io_limits.contains_key(device));
    let pressures = ["cpu", "io", "memory"].into_iter().filter_map(|resource| {
        let text = file(&format!("{resource}.pressure"))?;
        Some((resource.to_owned(), pressure(&text)?))
    });
    Cgroup {
        n_periods: count(stat, "nr_periods"),
        n_throttled: count(stat, "nr_throttled"),
        throttled_us: count(stat, "throttled_usec"),
        n_memory_high: count(events, "high"),
        n_memory_max: count(events, "max"),
        io,
        pressure: pressures.collect(),
        ..limits
    }
}

/// Those of the controllers of its hierarchy.
fn version1_limits(tree: &Tree, hierarchy: &str, folder: &str) -> Cgroup {
    let path = |name: &str| format!("{folder}/{name}");
    let mut limits = Cgroup::default();
    for controller in hierarchy.split(',') {
        match controller {
            "cpu" => {
                // -1: no limit.
                limits.quota_us = tree.number(&path("cpu.cfs_quota_us"));
                limits.period_us = tree.number(&path("cpu.cfs_period_us"));
            }
            "memory" => {
                let max = tree.number(&path("memory.limit_in_bytes"));
                limits.memory_max = max.filter(|bytes| *bytes < NO_LIMIT);
            }
            "cpuset" => {
                limits.cpus = tree
                    .text(&path("cpuset.effective_cpus"))
                    .or_else(|| tree.text(&path("cpuset.cpus")))
                    .filter(|c| !c.is_empty());
            }
            "blkio" => limits.io_limits = version1_io_limits(tree, folder),
            _ => {}
        }
    }
    limits
}

/// The limits with what the kernel counts.
fn version1(tree: &Tree, folder: &str, limits: Cgroup) -> Cgroup {
    let path = |name: &str| format!("{folder}/{name}");
    let stat = tree.text(&path("cpu.stat"));
    let stat = stat.as_deref();
    let io = if limits.io_limits.is_empty() {
        BTreeMap::new()
    } else {
        version1_io(tree, folder, &limits.io_limits)
    };
    Cgroup {
        n_periods: count(stat, "nr_periods"),
        n_throttled: count(stat, "nr_throttled"),
        throttled_us: count(stat, "throttled_time").map(|ns| ns / 1000),
        n_memory_max: tree.number(&path("memory.failcnt")),
        io,
        ..limits
    }
}

/// A group without any of them says nothing about time.
fn has_account(group: &Cgroup) -> bool {
    group.quota_us.is_some()
        || group.n_periods.is_some()
        || group.n_memory_high.is_some()
        || group.n_memory_max.is_some()
        || group.cpus.is_some()
        || !group.io_limits.is_empty()
        || !group.pressure.is_empty()
}

/// The field of a device by its key, in `io.max` and `io.stat`.
fn io_field<'i>(io: &'i mut BlockIo, key: &str) -> Option<&'i mut Option<u64>> {
    Some(match key {
        "rbps" | "rbytes" => &mut io.read_bytes,
        "wbps" | "wbytes" => &mut io.write_bytes,
        "riops" | "rios" => &mut io.reads,
        "wiops" | "wios" => &mut io.writes,
        _ => return None,
    })
}

/// Lines such as `8:0 rbps=max wbps=1048576`; what is `max` is left out, and devices of which all is.
fn devices(text: &str) -> BTreeMap<String, BlockIo> {
    let lines = text.lines().take(MAX_DEVICES).filter_map(|line| {
        let (device, fields) = line.split_once(' ')?;
        let mut io = BlockIo::default();
        for (key, value) in fields.split(' ').filter_map(|f| f.split_once('=')) {
            if let (Some(field), Ok(value)) = (io_field(&mut io, key), value.parse()) {
                *field = Some(value);
            }
        }
        (io != BlockIo::default()).then(|| (device.to_owned(), io))
    });
    lines.collect()
}

/// Each limit has a file, with lines such as `8:0 1048576`.
fn version1_io_limits(tree: &Tree, folder: &str) -> BTreeMap<String, BlockIo> {
    let mut all: BTreeMap<String, BlockIo> = BTreeMap::new();
    for (file, key) in [
        ("read_bps", "rbps"),
        ("write_bps", "wbps"),
        ("read_iops", "riops"),
        ("write_iops", "wiops"),
    ] {
        let text = tree.text(&format!("{folder}/blkio.throttle.{file}_device"));
        for line in text.unwrap_or_default().lines().take(MAX_DEVICES) {
            if let Some((device, value)) = line.split_once(' ')
                && let Ok(value) = value.trim().parse()
                && let Some(field) = io_field(all.entry(device.to_owned()).or_default(), key)
            {
                *field = Some(value);
            }
        }
    }
    all
}

/// Lines such as `8:0 Read 4096`, of devices that have a limit.
fn version1_io(
    tree: &Tree,
    folder: &str,
    limited: &BTreeMap<String, BlockIo>,
) -> BTreeMap<String, BlockIo> {
    let mut all: BTreeMap<String, BlockIo> = BTreeMap::new();
    for (file, keys) in [
        ("io_service_bytes", ["rbytes", "wbytes"]),
        ("io_serviced", ["rios", "wios"]),
    ] {
        let text = tree.text(&format!("{folder}/blkio.throttle.{file}"));
        for line in text.unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [device, operation, value] = words.as_slice() else {
                continue;
            };
            let key = match *operation {
                "Read" => keys[0],
                "Write" => keys[1],
                _ => continue,
            };
            if limited.contains_key(*device)
                && let Ok(value) = value.parse()
                && let Some(field) = io_field(all.entry((*device).to_owned()).or_default(), key)
            {
                *field = Some(value);
            }
        }
    }
    all
}

/// Lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let total = |kind: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.rsplit_once("total=")?.1.trim().parse().ok()
    };
    Some(Pressure {
        some_us: total("some ")?,
        full_us: total("full ").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check lines of `io.max` and `io.stat`, with limits that are none and lines that are no such.
    #[test]
    fn block_devices() {
        let text = "8:0 rbps=max wbps=1048576 riops=max wiops=120\n8:16 rbps=max wbps=max\n8:32\n";
        let limits = devices(text);
        assert_eq!(limits.keys().collect::<Vec<_>>(), ["8:0"]);
        let expected = BlockIo {
            write_bytes: Some(1_048_576),
            writes: Some(120),
            ..BlockIo::default()
        };
        assert_eq!(limits["8:0"], expected);
        let done = devices("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n");
        let expected = BlockIo {
            read_bytes: Some(1),
            write_bytes: Some(2),
            reads: Some(3),
            writes: Some(4),
        };
        assert_eq!(done["8:0"], expected);
    }

    /// Check a pressure file, one of `cpu` of older kernels without `full`, and others.
    #[test]
    fn pressures() {
        let some = "some avg10=1.00 avg60=0.05 avg300=0.21 total=4760988";
        let full = "full avg10=0.00 avg60=0.05 avg300=0.21 total=17";
        let both = pressure(&format!("{some}\n{full}\n")).unwrap();
        assert_eq!((both.some_us, both.full_us), (4_760_988, 17));
        assert_eq!(pressure(some).unwrap().full_us, 0);
        for text in ["", full, "some avg10=1.00", "some total=x"] {
            assert_eq!(pressure(text), None, "{text}");
        }
    }
}
