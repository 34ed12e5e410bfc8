//! The virtual machine itself: accelerator, processor model, network devices.

use crate::qemu::Machine;
use crate::report::{Out, setting};

const ID_TCG: &str = "qemu-tcg";
const ID_CPU: &str = "qemu-cpu-model";
const ID_NETWORK: &str = "qemu-network-emulated";
/// Shown, never found: the report saw hardly a difference.
const NAME_MACHINE: &str = "qemu-machine";

/// Models without AES-NI and AVX.
const OLD_MODELS: [&str; 4] = ["qemu64", "qemu32", "kvm64", "kvm32"];
const EMULATED_NICS: [&str; 7] = [
    "e1000", "rtl8139", "ne2k_pci", "pcnet", "i8255", "tulip", "vmxnet3",
];

pub(super) fn check(out: &mut Out<'_>, machine: &Machine) {
    accelerator(out, machine);
    let model = machine
        .cpu
        .as_deref()
        .map(|c| c.split(',').next().unwrap_or(c));
    match model {
        Some(model) if OLD_MODELS.contains(&model) => {
            out.found(ID_CPU, [setting("processor model", model, "-cpu")]);
        }
        Some(model) => out.passed(ID_CPU, format!("-cpu {model}")),
        None if is_accelerated(out, machine) == Some(true) => {
            let value = "QEMU's default, qemu64";
            out.found(ID_CPU, [setting("processor model", value, "no -cpu")]);
        }
        None => {}
    }
    let devices = machine
        .devices
        .iter()
        .filter_map(|d| Some((d, d.get("driver")?)));
    let (emulated, others): (Vec<_>, Vec<_>) =
        devices.partition(|(_, driver)| EMULATED_NICS.iter().any(|e| driver.starts_with(e)));
    let nics = emulated.into_iter().map(|(d, driver)| {
        let id = d.get("id").or(d.get("netdev")).unwrap_or("network device");
        setting(id, driver, "-device")
    });
    let has_virtio = others
        .iter()
        .any(|(_, driver)| driver.starts_with("virtio-net"));
    let seen = if has_virtio { "virtio-net" } else { "" };
    out.found_or_passed(ID_NETWORK, nics.collect(), seen);
    let name = machine.name.as_deref().unwrap_or("without a name");
    let kind = machine.machine.get("type").unwrap_or("QEMU's default");
    let seen = format!(
        "guest {name}, machine type {kind}; `-M q35` made hardly a difference in the report of 2022"
    );
    out.passed(NAME_MACHINE, seen);
}

/// By the descriptors that KVM gave it; else by the command line.
fn is_accelerated(out: &Out<'_>, machine: &Machine) -> Option<bool> {
    match &out.snapshot.process.fds {
        Some(fds) if fds.n > 0 => Some(fds.anonymous.contains_key("kvm-vm")),
        _ => match machine.accelerators.first().map(String::as_str) {
            Some("kvm") => Some(true),
            Some("tcg") => Some(false),
            _ => None,
        },
    }
}

fn accelerator(out: &mut Out<'_>, machine: &Machine) {
    let asked = match machine.accelerators.as_slice() {
        [] => "none asked for on the command line".to_owned(),
        all => all.join(", ") + " asked for on the command line",
    };
    match is_accelerated(out, machine) {
        Some(true) => out.passed(ID_TCG, format!("KVM; {asked}")),
        Some(false) => {
            let process = &out.snapshot.process;
            let origin = match process.fds.as_ref().is_some_and(|f| f.n > 0) {
                true => format!("/proc/{}/fd has no kvm-vm", process.pid),
                false => "-accel, -machine".into(),
            };
            out.found(
                ID_TCG,
                [setting("accelerator", format!("TCG; {asked}"), origin)],
            );
        }
        None => out.unknown(
            ID_TCG,
            "the command line names no accelerator, and the open files were not readable",
            "run as root: `/proc/PID/fd` shows `anon_inode:kvm-vm`",
        ),
    }
}
