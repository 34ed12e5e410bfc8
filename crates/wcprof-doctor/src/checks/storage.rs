//! Block devices under the process's files: I/O scheduler, what BlueStore lies on.

use wcprof_types::snapshot::BlockDevice;

use super::words::chosen;
use crate::report::{Out, setting};

const ID_SCHEDULER: &str = "io-scheduler";
const ID_DB_ON_HDD: &str = "bluestore-db-rotational";

/// The disks at the bottom of a device.
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

/// Devices that do not know what they are stored on: most of them claim to rotate.
fn is_virtual(name: &str) -> bool {
    let kinds = ["vd", "xvd", "loop", "nbd", "rbd", "zram", "drbd"];
    kinds.iter().any(|kind| name.starts_with(kind))
}

pub(super) fn check(out: &mut Out<'_>) {
    let (mut found, mut seen, mut name) = (Vec::new(), Vec::new(), "");
    let disks = out
        .snapshot
        .host
        .devices
        .iter()
        .filter(|d| d.members.is_empty());
    for disk in disks {
        let scheduler = disk.scheduler.as_deref().and_then(chosen);
        let (Some(rotational), Some(scheduler)) = (disk.rotational, scheduler) else {
            continue;
        };
        let kind = match rotational {
            _ if is_virtual(&disk.name) => "virtual",
            true => "rotational",
            false => "flash",
        };
        let label = format!("{} ({kind})", disk.name);
        if !rotational && scheduler != "none" && scheduler != "noop" {
            name = &disk.name;
            let path = format!("/sys/block/{name}/queue/scheduler");
            found.push(setting(label, scheduler, path));
        } else {
            seen.push(format!("{label}: {scheduler}"));
        }
    }
    match found.is_empty() {
        true => out.passed(ID_SCHEDULER, seen.join(", ")),
        false => out.found_with(ID_SCHEDULER, found, &[("device", name)]),
    }
    bluestore(out);
}

fn bluestore(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    let Some(links) = process.ceph.as_ref().map(|c| &c.links) else {
        return;
    };
    let Some(block) = links.get("block") else {
        return;
    };
    // The link of the data folder may go through LVM; what the OSD has open is the device itself.
    let files = process.fds.iter().flat_map(|f| &f.files);
    let mut open = files.filter(|f| f.is_device).peekable();
    let is_rotational = open.peek().is_some()
        && open.all(|f| {
            let leaves = leaves(&out.snapshot.host.devices, &f.device);
            let rotates = |d: &&BlockDevice| d.rotational == Some(true) && !is_virtual(&d.name);
            !leaves.is_empty() && leaves.iter().all(rotates)
        });
    if is_rotational && !links.contains_key("block.db") {
        let db = "none: metadata is on the same disk";
        let found = [
            ("block", format!("{block}, rotational")),
            ("block.db", db.into()),
        ];
        let found = found.map(|(name, value)| setting(name, value, "OSD's data folder"));
        out.found(ID_DB_ON_HDD, found);
    } else {
        let db = links.get("block.db").map_or("none", String::as_str);
        out.passed(ID_DB_ON_HDD, format!("block {block}, block.db {db}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check partitions, and members that go in a circle.
    #[test]
    fn devices() {
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
