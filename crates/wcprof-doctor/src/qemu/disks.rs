//! `-drive`, `-blockdev` and `-device` to disks: how the guest sees each, and how QEMU serves it.
//!
//! Facts: QEMU's `qemu-options.hx` (cache modes, defaults), `block/rbd.c` (the cache mode is written
//! over every other setting of `rbd_cache`), `hw/i386/pc*.c` (default interface of a drive).

use super::Options;

/// Nodes below a disk that are followed.
const MAX_NODES: usize = 8;
/// Disks of a machine.
const MAX_DISKS: usize = 512;

/// How the guest reaches a disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Interface {
    /// ATA: `ide-hd` on an IDE or AHCI controller.
    Ide,
    /// virtio-blk.
    VirtioBlk,
    /// A SCSI disk behind virtio-scsi.
    VirtioScsi,
    /// A SCSI disk behind an emulated controller.
    EmulatedScsi,
    /// Another emulated one (NVMe, USB, SD).
    Other,
}

impl Interface {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ide => "IDE or AHCI (emulated)",
            Self::VirtioBlk => "virtio-blk",
            Self::VirtioScsi => "virtio-scsi",
            Self::EmulatedScsi => "SCSI controller (emulated)",
            Self::Other => "another emulated one",
        }
    }

    pub(crate) fn is_virtio(self) -> bool {
        matches!(self, Self::VirtioBlk | Self::VirtioScsi)
    }
}

/// QEMU's cache mode, as the switches that it stands for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cache {
    /// `cache=...` as given.
    pub(crate) mode: Option<String>,
    /// Around the host's page cache, and of rbd: `rbd_cache` off.
    pub(crate) direct: bool,
    /// Flushes of the guest are ignored.
    pub(crate) no_flush: bool,
}

/// A disk of the guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Disk {
    /// Its drive or node name.
    pub(crate) id: String,
    /// How the guest sees it.
    pub(crate) interface: Interface,
    /// Driver of the device, as typed.
    pub(crate) device: String,
    /// The iothread that serves it, or its controller.
    pub(crate) iothread: Option<String>,
    /// The option it was read from.
    pub(crate) origin: String,
    /// How QEMU serves it.
    pub(crate) io: DiskIo,
}

/// What a drive or node does its I/O with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DiskIo {
    /// Format driver, when it is given: `raw`, `qcow2`.
    pub(crate) format: Option<String>,
    /// Protocol driver: `rbd`, `file`, `host_device`.
    pub(crate) protocol: String,
    /// File, device or `pool/image`.
    pub(crate) file: String,
    /// Cache mode of the node that does the I/O.
    pub(crate) cache: Cache,
    /// `threads`, `native`, `io_uring`.
    pub(crate) aio: Option<String>,
    /// `rbd_cache` and `rbd_cache_policy` in the file name.
    pub(crate) rbd_cache: Option<String>,
    pub(crate) rbd_cache_policy: Option<String>,
}

/// Options about disks.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) drives: Vec<Options>,
    pub(super) nodes: Vec<Options>,
    pub(super) ide: Vec<String>,
}

impl Lines {
    pub(super) fn disks(&self, devices: &[Options], machine: Option<&str>) -> Vec<Disk> {
        let of_devices = devices
            .iter()
            .filter_map(|device| self.of_device(device, devices));
        let of_drives = self
            .drives
            .iter()
            .filter_map(|drive| of_drive(drive, machine));
        let ide = self.ide.iter().map(|file| {
            let drive = Options::parse(&file.replace(',', ",,"), "file");
            disk("(none)", Interface::Ide, "-hda", &drive)
        });
        of_devices
            .chain(of_drives)
            .chain(ide)
            .take(MAX_DISKS)
            .collect()
    }

    fn of_device(&self, device: &Options, devices: &[Options]) -> Option<Disk> {
        let drive = device.get("drive")?;
        let driver = device.get("driver")?;
        let controller = controller(device, devices);
        let interface = match driver {
            d if d.starts_with("virtio-blk") => Interface::VirtioBlk,
            "ide-cd" | "scsi-cd" | "floppy" => return None,
            "ide-hd" | "ide-drive" => Interface::Ide,
            "scsi-hd" | "scsi-disk" | "scsi-block" | "scsi-generic" => {
                match controller.and_then(|c| c.get("driver")) {
                    Some(c) if c.starts_with("virtio-scsi") => Interface::VirtioScsi,
                    _ => Interface::EmulatedScsi,
                }
            }
            _ => Interface::Other,
        };
        let iothread = iothread(device).or_else(|| controller.and_then(iothread));
        let (io, origin) = match self.drives.iter().find(|d| d.get("id") == Some(drive)) {
            Some(options) => (disk_io(options, None), "-drive"),
            None => (self.of_node(drive)?, "-blockdev"),
        };
        if io.file.is_empty() && io.protocol.is_empty() {
            return None;
        }
        Some(Disk {
            id: drive.to_owned(),
            interface,
            device: driver.to_owned(),
            iothread: iothread.map(str::to_owned),
            origin: format!("{origin} of {drive}"),
            io,
        })
    }

    fn node(&self, name: &str) -> Option<&Options> {
        self.nodes.iter().find(|n| n.get("node-name") == Some(name))
    }

    /// What is below a node: filters, a format, and the node that does the I/O.
    fn of_node(&self, name: &str) -> Option<DiskIo> {
        let first = self.node(name)?;
        let below = |node: &&Options| node.get("file").and_then(|name| self.node(name));
        let chain: Vec<&Options> = std::iter::successors(Some(first), below)
            .take(MAX_NODES)
            .collect();
        let has_format = |n: &Options| n.get("driver").is_some_and(|d| FORMATS.contains(&d));
        let at = chain.iter().position(|n| has_format(n)).unwrap_or(0);
        let format = chain.get(at).copied()?;
        let child = chain.get(at + 1..).and_then(|c| c.last()).copied();
        let mut io = disk_io(format, child);
        // Nodes are never probed: one without a format is read as it is.
        io.format.get_or_insert_with(|| "raw".into());
        Some(io)
    }
}

/// The iothread of a device; of several for one disk (`iothread-vq-mapping`) that they are.
fn iothread(device: &Options) -> Option<&str> {
    let mapped = device.get("iothread-vq-mapping.0.iothread");
    device
        .get("iothread")
        .or(mapped.map(|_| "iothread-vq-mapping"))
}

const CONTROLLERS: [&str; 6] = [
    "virtio-scsi",
    "lsi",
    "megasas",
    "mptsas",
    "am53c974",
    "pvscsi",
];

/// The controller of a SCSI disk: the one its bus names, or the only one.
fn controller<'a>(device: &Options, devices: &'a [Options]) -> Option<&'a Options> {
    let is_controller = |d: &&Options| {
        let driver = d.get("driver").unwrap_or_default();
        CONTROLLERS.iter().any(|c| driver.starts_with(c))
    };
    let mut all = devices.iter().filter(is_controller);
    match device.get("bus").and_then(|bus| bus.rsplit_once('.')) {
        Some((id, _)) => all.find(|d| d.get("id") == Some(id)),
        None => all.next().filter(|_| all.next().is_none()),
    }
}

/// A drive that brings its device along.
fn of_drive(drive: &Options, machine: Option<&str>) -> Option<Disk> {
    if drive.get("media") == Some("cdrom") {
        return None;
    }
    let default = match machine {
        Some(m) if m.starts_with("virt") || m.starts_with("s390") || m == "microvm" => "virtio",
        _ => "ide",
    };
    let (interface, device) = match drive.get("if").unwrap_or(default) {
        "virtio" => (Interface::VirtioBlk, "if=virtio"),
        "ide" => (Interface::Ide, "if=ide"),
        "scsi" => (Interface::EmulatedScsi, "if=scsi"),
        "none" | "pflash" | "floppy" | "mtd" => return None,
        _ => (Interface::Other, "if="),
    };
    let id = drive.get("id").unwrap_or("(none)");
    Some(disk(id, interface, device, drive))
}

fn disk(id: &str, interface: Interface, device: &str, drive: &Options) -> Disk {
    Disk {
        id: id.to_owned(),
        interface,
        device: device.to_owned(),
        iothread: None,
        origin: "-drive".into(),
        io: disk_io(drive, None),
    }
}

const FORMATS: [&str; 9] = [
    "raw", "qcow2", "qed", "vmdk", "vdi", "vhdx", "vpc", "luks", "qcow",
];

/// What a drive, or a node over its child, does its I/O with.
fn disk_io(options: &Options, child: Option<&Options>) -> DiskIo {
    let driver = options.get("driver").or_else(|| options.get("format"));
    let format = driver.filter(|d| FORMATS.contains(d));
    // The node that does the I/O: a child of its own, one written inside, or the node itself.
    let inner = |key: &str| match child {
        Some(child) => child.get(key),
        None => options
            .get(&format!("file.{key}"))
            .or_else(|| options.get(key)),
    };
    let name = options.get("file").filter(|_| child.is_none());
    let name = name.or_else(|| inner("filename")).unwrap_or_default();
    let (scheme, file) = match name.split_once(':') {
        Some((scheme, rest)) if !scheme.contains('/') && scheme != "json" => (scheme, rest),
        _ => ("", name),
    };
    let protocol = match (scheme, inner("driver")) {
        ("", Some(driver)) if !FORMATS.contains(&driver) => driver.to_owned(),
        ("", _) if file.starts_with("/dev/") => "host_device".to_owned(),
        ("", _) => "file".to_owned(),
        (scheme, _) => scheme.to_owned(),
    };
    let image = match (inner("pool"), inner("image")) {
        (Some(pool), Some(image)) => format!("{pool}/{image}"),
        _ => file.split(':').next().unwrap_or(file).to_owned(),
    };
    let rbd = |key: &str| {
        let mut found = file.split(':').filter_map(|o| o.split_once('='));
        found.rfind(|(k, _)| *k == key).map(|(_, v)| v.to_owned())
    };
    let (rbd_cache, rbd_cache_policy) = match protocol.as_str() {
        "rbd" => (rbd("rbd_cache"), rbd("rbd_cache_policy")),
        _ => (None, None),
    };
    DiskIo {
        format: format.map(str::to_owned),
        file: image,
        cache: cache(options, child),
        aio: inner("aio")
            .or_else(|| options.get("aio"))
            .map(str::to_owned),
        rbd_cache,
        rbd_cache_policy,
        protocol,
    }
}

/// The cache of the node that does the I/O. Inside one option the child inherits; a node of its own
/// does not.
fn cache(options: &Options, child: Option<&Options>) -> Cache {
    let mode = options.get("cache");
    let switch = |key: &str| match child {
        Some(child) => child.is_on(key),
        None => options
            .is_on(&format!("file.{key}"))
            .or_else(|| options.is_on(key)),
    };
    Cache {
        mode: mode.map(str::to_owned),
        direct: switch("cache.direct")
            .unwrap_or(matches!(mode, Some("none" | "off" | "directsync"))),
        no_flush: switch("cache.no-flush").unwrap_or(mode == Some("unsafe")),
    }
}
