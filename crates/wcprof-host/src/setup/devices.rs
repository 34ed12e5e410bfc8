//! Block and network devices of a host, with their interrupts.

use wcprof_types::snapshot::{BlockDevice, Irq, Nic, ProcessSetup, limits};

use super::tree::Tree;

/// Devices below devices (LVM on dm-crypt on RAID on partitions), down to this depth.
const MAX_DEPTH: usize = 6;

/// The devices that the process's files are or lie on, and what they are made of.
pub(super) fn of_process(tree: &Tree, process: &ProcessSetup) -> Vec<BlockDevice> {
    let mut devices = Vec::new();
    let files = process.fds.iter().flat_map(|fds| &fds.files);
    for file in files.filter(|f| !f.device.is_empty()) {
        add(tree, &file.device, 0, &mut devices);
    }
    devices
}

fn add(tree: &Tree, name: &str, depth: usize, devices: &mut Vec<BlockDevice>) {
    let Some(mut folder) = tree.real(&format!("/sys/class/block/{name}")) else {
        return;
    };
    // Of a partition, the disk counts.
    if tree.text(&format!("{folder}/partition")).is_some()
        && let Some((disk, _)) = folder.rsplit_once('/')
    {
        folder = disk.to_owned();
    }
    let name = folder.rsplit('/').next().unwrap_or(name).to_owned();
    if depth > MAX_DEPTH
        || devices.len() >= limits::DEVICES
        || devices.iter().any(|d| d.name == name)
    {
        return;
    }
    let members = tree.names(&format!("{folder}/slaves"));
    devices.push(BlockDevice {
        rotational: tree
            .number(&format!("{folder}/queue/rotational"))
            .map(|r: u8| r != 0),
        model: tree.text(&format!("{folder}/device/model")),
        scheduler: tree.text(&format!("{folder}/queue/scheduler")),
        numa_node: numa_node(tree, &folder),
        irqs: irqs(tree, &folder),
        members: members.clone(),
        name,
    });
    for member in &members {
        add(tree, member, depth + 1, devices);
    }
}

/// A device's folder and those above it, up to the bus.
fn above(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |f| f.rsplit_once('/').map(|(up, _)| up))
        .take_while(|f| f.starts_with("/sys/devices/") && !f.starts_with("/sys/devices/virtual/"))
}

/// The NUMA node of a device, or of what it is plugged into.
fn numa_node(tree: &Tree, folder: &str) -> Option<i32> {
    above(folder).find_map(|d| tree.number(&format!("{d}/numa_node")))
}

/// The interrupts of a device, or of what it is plugged into.
fn irqs(tree: &Tree, folder: &str) -> Vec<Irq> {
    let mut all = above(folder).map(|d| pci_irqs(tree, d));
    all.find(|irqs| !irqs.is_empty()).unwrap_or_default()
}

/// The interrupts of a PCI device: one a queue (MSI), or its line.
fn pci_irqs(tree: &Tree, folder: &str) -> Vec<Irq> {
    let mut numbers = tree.names(&format!("{folder}/msi_irqs"));
    if numbers.is_empty() {
        let line = tree.text(&format!("{folder}/irq"));
        numbers.extend(line.filter(|n| n != "0"));
    }
    numbers
        .iter()
        .take(limits::IRQS)
        .filter_map(|number| {
            let folder = format!("/proc/irq/{number}");
            // Where the interrupts go, if the kernel shows it; else where they may go.
            let cpus = tree
                .text(&format!("{folder}/effective_affinity_list"))
                .filter(|cpus| !cpus.is_empty())
                .or_else(|| tree.text(&format!("{folder}/smp_affinity_list")))?;
            Some(Irq {
                number: number.parse().ok()?,
                cpus,
            })
        })
        .collect()
}

/// Network devices with hardware below them that are up.
pub(super) fn nics(tree: &Tree) -> Vec<Nic> {
    let names = tree.names("/sys/class/net");
    names
        .iter()
        .filter_map(|name| {
            let class = format!("/sys/class/net/{name}");
            if tree.text(&format!("{class}/operstate"))? != "up" {
                return None;
            }
            let hardware = tree.real(&format!("{class}/device"))?;
            Some(Nic {
                name: name.clone(),
                numa_node: numa_node(tree, &hardware),
                irqs: irqs(tree, &hardware),
            })
        })
        .take(limits::NICS)
        .collect()
}
