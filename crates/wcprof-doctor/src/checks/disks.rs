//! Disks of a virtual machine: interface, iothreads, cache, format, aio.

use wcprof_findings::Setting;
use wcprof_text::count;

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
    let drivers = machine.devices.iter().filter_map(|d| d.get("driver"));
    let is_served = |driver: &&str| {
        driver.starts_with("vhost-user-blk") || driver.starts_with("vhost-user-scsi")
    };
    let n_served = drivers.filter(is_served).count();
    if disks.is_empty() && n_served > 0 {
        let seen = count(n_served, "disk") + " of vhost-user: another process does the I/O";
        out.passed(ID_INTERFACE, seen);
        return;
    }
    if disks.is_empty() {
        out.unknown(
            ID_INTERFACE,
            "no disk is on the command line: there is none, or it was added later",
            "`virsh qemu-monitor-command DOMAIN --hmp 'info block'`, or `info block` in QEMU's monitor",
        );
        return;
    }
    let each = |test: fn(&Disk) -> Option<Setting>| -> Vec<Setting> {
        disks.iter().filter_map(test).collect()
    };
    let interfaces: Vec<&str> = disks.iter().map(|d| d.interface.name()).collect();
    out.found_or_passed(ID_INTERFACE, each(interface), interfaces.join(", "));
    iothreads(out, machine);
    let seen = match disks.iter().filter(|d| d.io.protocol == "rbd").count() {
        0 => String::new(),
        n => format!("off for {} on rbd", count(n, "disk")),
    };
    out.found_or_passed(ID_RBD_CACHE, each(rbd_cache), seen);
    out.found(ID_RBD_OVERRIDE, each(rbd_override));
    out.found(ID_HOST_CACHE, each(host_cache));
    out.found_or_passed(
        ID_UNSAFE,
        each(unsafe_cache),
        "QEMU obeys flushes of the guest",
    );
    let formats: Vec<&str> = disks
        .iter()
        .filter_map(|d| d.io.format.as_deref())
        .collect();
    out.found_or_passed(ID_FORMAT, each(format), formats.join(", "));
    out.found(ID_AIO, each(aio));
    let n_probed = disks.len() - formats.len();
    if n_probed > 0 {
        let disks = count(n_probed, "disk");
        let reason = format!("{disks} without `format=`: QEMU probed the image");
        out.unknown(ID_FORMAT, reason, "`qemu-img info -U FILE`");
    }
}

/// A setting of a disk.
fn of(disk: &Disk, what: &str, value: impl Into<String>) -> Setting {
    setting(format!("{}, {what}", disk.id), value, disk.origin.clone())
}

fn interface(disk: &Disk) -> Option<Setting> {
    let value = || format!("{}: {}", disk.interface.name(), disk.device);
    (!disk.interface.is_virtio()).then(|| of(disk, "interface", value()))
}

fn iothreads(out: &mut Out<'_>, machine: &Machine) {
    let virtio = || machine.disks.iter().filter(|d| d.interface.is_virtio());
    let without = virtio().filter(|d| d.iothread.is_none());
    let without = without.map(|d| of(d, "iothread", "none: QEMU's main loop serves it"));
    let threads = machine.iothreads();
    let seen = match virtio().count() {
        0 => String::new(),
        n => count(n, "disk") + " with " + &count(threads.len(), "iothread"),
    };
    out.found_or_passed(ID_IOTHREAD, without.collect(), seen);
    for thread in threads {
        let served = virtio().filter(|d| d.iothread.as_deref() == Some(thread));
        let served: Vec<Setting> = served.map(|d| of(d, "iothread", thread)).collect();
        if served.len() > 1 {
            out.found(ID_SHARED, served);
        }
    }
}

fn mode(disk: &Disk) -> String {
    match &disk.io.cache.mode {
        Some(mode) => format!("cache={mode}"),
        None if disk.io.cache.direct => "cache.direct=on".into(),
        None => "cache=writeback, the default".into(),
    }
}

fn rbd_cache(disk: &Disk) -> Option<Setting> {
    let policy = disk.io.rbd_cache_policy.as_ref();
    let policy = policy.map_or(String::new(), |policy| {
        format!(", rbd_cache_policy={policy}")
    });
    let value = format!("true, by {}{policy}", mode(disk));
    (disk.io.protocol == "rbd" && !disk.io.cache.direct).then(|| of(disk, "rbd_cache", value))
}

fn rbd_override(disk: &Disk) -> Option<Setting> {
    let asked = disk.io.rbd_cache.as_deref()?;
    let is_on = matches!(asked, "true" | "1" | "yes" | "on");
    let value = format!("{asked} in the file name, but {}", mode(disk));
    (is_on == disk.io.cache.direct).then(|| of(disk, "rbd_cache", value))
}

fn host_cache(disk: &Disk) -> Option<Setting> {
    (disk.io.protocol == "host_device" && !disk.io.cache.direct)
        .then(|| of(disk, "cache", format!("{} on {}", mode(disk), disk.io.file)))
}

fn unsafe_cache(disk: &Disk) -> Option<Setting> {
    disk.io
        .cache
        .no_flush
        .then(|| of(disk, "cache", mode(disk)))
}

fn format(disk: &Disk) -> Option<Setting> {
    let format = disk.io.format.as_deref()?;
    (!matches!(format, "raw" | "luks")).then(|| of(disk, "format", format))
}

fn aio(disk: &Disk) -> Option<Setting> {
    let is_local = matches!(disk.io.protocol.as_str(), "file" | "host_device");
    let has_threads = disk.io.aio.as_deref().is_none_or(|aio| aio == "threads");
    (is_local && disk.io.cache.direct && has_threads)
        .then(|| of(disk, "aio", "threads, with cache.direct=on"))
}
