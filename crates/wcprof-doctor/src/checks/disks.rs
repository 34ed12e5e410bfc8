//! Disks of a virtual machine: interface, iothreads, cache, format, aio.

use wcprof_findings::Setting;

use super::plural;
use crate::qemu::{Disk, Machine};
use crate::report::{Out, setting};

const ID_INTERFACE: &str = "qemu-disk-interface";
const ID_IOTHREAD: &str = "qemu-iothread-missing";
const ID_SHARED: &str = "qemu-iothread-shared";
const ID_RBD_CACHE: &str = "qemu-rbd-cache";
const ID_RBD_OVERRIDE: &str = "qemu-rbd-cache-ignored";
const ID_HOST_CACHE: &str = "qemu-host-cache";
const ID_UNSAFE: &str = "qemu-cache-unsafe";
const ID_FORMAT: &str = "qemu-qcow2";
const ID_AIO: &str = "qemu-aio";

pub(super) fn check(out: &mut Out<'_>, machine: &Machine) {
    let disks = &machine.disks;
    let served = machine.devices.iter().filter_map(|d| d.get("driver"));
    let served =
        served.filter(|d| d.starts_with("vhost-user-blk") || d.starts_with("vhost-user-scsi"));
    let n_served = served.count();
    if disks.is_empty() && n_served > 0 {
        let seen = format!(
            "{} of vhost-user: another process does the I/O",
            plural(n_served, "disk")
        );
        out.passed(ID_INTERFACE, seen);
        return;
    }
    if disks.is_empty() {
        out.unknown(
            ID_INTERFACE,
            "no disk is on the command line: none, or added while it ran",
            "`virsh qemu-monitor-command DOMAIN --hmp 'info block'`, or `info block` in QEMU's monitor",
        );
        return;
    }
    let each = |test: fn(&Disk) -> Option<Setting>| -> Vec<Setting> {
        disks.iter().filter_map(test).collect()
    };
    let summary: Vec<String> = disks
        .iter()
        .map(|d| d.interface.name().to_owned())
        .collect();
    out.found_or_passed(ID_INTERFACE, each(interface), summary.join(", "));
    iothreads(out, machine);
    let rbd = disks.iter().filter(|d| d.protocol == "rbd").count();
    let seen = match rbd {
        0 => String::new(),
        n => format!("off for {} on rbd", plural(n, "disk")),
    };
    out.found_or_passed(ID_RBD_CACHE, each(rbd_cache), seen);
    out.found_or_passed(ID_RBD_OVERRIDE, each(rbd_override), "");
    out.found_or_passed(ID_HOST_CACHE, each(host_cache), "");
    out.found_or_passed(
        ID_UNSAFE,
        each(unsafe_cache),
        "flushes of the guest are obeyed",
    );
    let formats: Vec<&str> = disks.iter().filter_map(|d| d.format.as_deref()).collect();
    out.found_or_passed(ID_FORMAT, each(format), formats.join(", "));
    out.found_or_passed(ID_AIO, each(aio), "");
    let probed = disks.iter().filter(|d| d.format.is_none()).count();
    if probed > 0 {
        out.unknown(
            ID_FORMAT,
            format!(
                "{} without `format=`: QEMU probed the image",
                plural(probed, "disk")
            ),
            "`qemu-img info -U FILE`",
        );
    }
}

/// What a finding says of a disk.
fn of(disk: &Disk, what: &str, value: impl Into<String>) -> Setting {
    setting(format!("{}, {what}", disk.id), value, disk.origin.clone())
}

fn interface(disk: &Disk) -> Option<Setting> {
    (!disk.interface.is_virtio()).then(|| {
        of(
            disk,
            "interface",
            format!("{}: {}", disk.interface.name(), disk.device),
        )
    })
}

fn iothreads(out: &mut Out<'_>, machine: &Machine) {
    let virtio: Vec<&Disk> = machine
        .disks
        .iter()
        .filter(|d| d.interface.is_virtio())
        .collect();
    let without: Vec<Setting> = virtio
        .iter()
        .filter(|d| d.iothread.is_none())
        .map(|d| of(d, "iothread", "none: QEMU's main loop serves it"))
        .collect();
    let threads = machine.iothreads();
    let seen = match virtio.len() {
        0 => String::new(),
        n => format!(
            "{} with {}",
            plural(n, "disk"),
            plural(threads.len(), "iothread")
        ),
    };
    out.found_or_passed(ID_IOTHREAD, without, seen);
    for thread in threads {
        let served: Vec<&&Disk> = virtio
            .iter()
            .filter(|d| d.iothread.as_deref() == Some(thread))
            .collect();
        if served.len() > 1 {
            let settings = served.iter().map(|d| of(d, "iothread", thread)).collect();
            out.found(ID_SHARED, settings, &[]);
        }
    }
}

fn mode(disk: &Disk) -> String {
    match &disk.cache.mode {
        Some(mode) => format!("cache={mode}"),
        None if disk.cache.direct => "cache.direct=on".into(),
        None => "cache=writeback, the default".into(),
    }
}

fn rbd_cache(disk: &Disk) -> Option<Setting> {
    if disk.protocol != "rbd" || disk.cache.direct {
        return None;
    }
    let policy = match &disk.rbd_cache_policy {
        Some(policy) => format!(", rbd_cache_policy={policy}"),
        None => String::new(),
    };
    Some(of(
        disk,
        "rbd_cache",
        format!("true, by {}{policy}", mode(disk)),
    ))
}

fn rbd_override(disk: &Disk) -> Option<Setting> {
    let asked = matches!(disk.rbd_cache.as_deref()?, "true" | "1" | "yes" | "on");
    (asked == disk.cache.direct).then(|| {
        let asked = disk.rbd_cache.as_deref().unwrap_or_default();
        of(
            disk,
            "rbd_cache",
            format!("{asked} in the file name, but {}", mode(disk)),
        )
    })
}

fn is_local(disk: &Disk) -> bool {
    matches!(disk.protocol.as_str(), "file" | "host_device")
}

fn host_cache(disk: &Disk) -> Option<Setting> {
    (disk.protocol == "host_device" && !disk.cache.direct)
        .then(|| of(disk, "cache", format!("{} on {}", mode(disk), disk.file)))
}

fn unsafe_cache(disk: &Disk) -> Option<Setting> {
    disk.cache.no_flush.then(|| of(disk, "cache", mode(disk)))
}

fn format(disk: &Disk) -> Option<Setting> {
    let format = disk.format.as_deref()?;
    (!matches!(format, "raw" | "luks")).then(|| of(disk, "format", format))
}

fn aio(disk: &Disk) -> Option<Setting> {
    let aio = disk.aio.as_deref().unwrap_or("threads");
    (is_local(disk) && disk.cache.direct && aio == "threads")
        .then(|| of(disk, "aio", "threads, with cache.direct=on"))
}
