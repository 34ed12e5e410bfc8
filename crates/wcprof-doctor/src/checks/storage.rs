//! Block devices under the process's files: I/O scheduler, what BlueStore lies on.

use wcprof_findings::Setting;
use wcprof_types::snapshot::BlockDevice;

use crate::report::{Out, setting};

const ID_SCHEDULER: &str = "io-scheduler";
const ID_DB_ON_HDD: &str = "bluestore-db-rotational";

/// The devices that are made of nothing else, below a device.
pub(super) fn leaves<'a>(devices: &'a [BlockDevice], name: &str) -> Vec<&'a BlockDevice> {
    let mut found = Vec::new();
    let mut open = vec![name];
    // Each device is looked at once, whatever the snapshot says of its members.
    let mut left = devices.len();
    while let Some(name) = open.pop() {
        // A partition is listed under its disk.
        let is = |d: &&BlockDevice| d.name == name || is_partition(name, &d.name);
        let Some(device) = devices.iter().find(is) else {
            continue;
        };
        if left == 0 {
            break;
        }
        left -= 1;
        if device.members.is_empty() {
            found.push(device);
        } else {
            open.extend(device.members.iter().map(String::as_str));
        }
    }
    found
}

/// `sda1` of `sda`, `nvme0n1p1` of `nvme0n1`.
fn is_partition(name: &str, disk: &str) -> bool {
    let rest = name.strip_prefix(disk).unwrap_or_default();
    let rest = match disk.ends_with(|c: char| c.is_ascii_digit()) {
        true => rest.strip_prefix('p').unwrap_or_default(),
        false => rest,
    };
    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_digit())
}

/// Devices that do not know what they lie on: most of them say that they rotate.
fn is_virtual(name: &str) -> bool {
    let kinds = ["vd", "xvd", "loop", "nbd", "rbd", "zram", "drbd"];
    kinds.iter().any(|kind| name.starts_with(kind))
}

/// `[none] mq-deadline` to `none`.
fn chosen(scheduler: &str) -> Option<&str> {
    match scheduler.split_once('[') {
        Some((_, rest)) => Some(rest.split_once(']')?.0),
        None => Some(scheduler).filter(|s| !s.is_empty() && !s.contains(' ')),
    }
}

pub(super) fn check(out: &mut Out<'_>) {
    let snapshot = out.snapshot;
    let devices = &snapshot.host.devices;
    let mut found: Vec<Setting> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut name = "";
    for device in devices.iter().filter(|d| d.members.is_empty()) {
        let (Some(rotational), Some(scheduler)) = (
            device.rotational,
            device.scheduler.as_deref().and_then(chosen),
        ) else {
            continue;
        };
        let kind = match rotational {
            _ if is_virtual(&device.name) => "virtual",
            true => "rotational",
            false => "flash",
        };
        if !rotational && scheduler != "none" && scheduler != "noop" {
            name = &device.name;
            let path = format!("/sys/block/{}/queue/scheduler", device.name);
            found.push(setting(
                format!("{} ({kind})", device.name),
                scheduler,
                path,
            ));
        } else {
            seen.push(format!("{} ({kind}): {scheduler}", device.name));
        }
    }
    if found.is_empty() {
        out.passed(ID_SCHEDULER, seen.join(", "));
    } else {
        out.found(ID_SCHEDULER, found, &[("device", name)]);
    }
    bluestore(out);
}

fn bluestore(out: &mut Out<'_>) {
    let snapshot = out.snapshot;
    let Some(links) = snapshot.process.ceph.as_ref().map(|c| &c.links) else {
        return;
    };
    let Some(block) = links.get("block") else {
        return;
    };
    // The link of the data folder may go through LVM; what the OSD has open is the device itself.
    let files = snapshot.process.fds.iter().flat_map(|f| &f.files);
    let mut open = files.filter(|f| f.is_device).peekable();
    let rotational = open.peek().is_some()
        && open.all(|f| {
            let leaves = leaves(&snapshot.host.devices, &f.device);
            let rotates = |d: &&BlockDevice| d.rotational == Some(true) && !is_virtual(&d.name);
            !leaves.is_empty() && leaves.iter().all(rotates)
        });
    if rotational && !links.contains_key("block.db") {
        let found = vec![
            setting("block", format!("{block}, rotational"), "OSD's data folder"),
            setting(
                "block.db",
                "none: metadata is on the same disk",
                "OSD's data folder",
            ),
        ];
        out.found(ID_DB_ON_HDD, found, &[]);
    } else {
        let db = links.get("block.db").map_or("none", String::as_str);
        out.passed(ID_DB_ON_HDD, format!("block {block}, block.db {db}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the scheduler in force, partitions, and members that go in a circle.
    #[test]
    fn devices() {
        assert_eq!(chosen("mq-deadline kyber [none]"), Some("none"));
        assert_eq!(chosen("none"), Some("none"));
        assert_eq!(chosen("a b"), None);
        assert!(is_partition("sda1", "sda") && is_partition("nvme0n1p2", "nvme0n1"));
        assert!(!is_partition("sdab", "sda") && !is_partition("nvme0n12", "nvme0n1"));
        let device = |name: &str, members: &[&str]| BlockDevice {
            name: name.into(),
            members: members.iter().map(|&m| m.into()).collect(),
            ..BlockDevice::default()
        };
        let all = [
            device("dm-0", &["sda1"]),
            device("sda", &[]),
            device("md0", &["md0"]),
        ];
        assert_eq!(leaves(&all, "dm-0")[0].name, "sda");
        assert!(leaves(&all, "md0").is_empty());
    }
}
