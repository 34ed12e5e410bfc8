//! The virtual machine itself: accelerator, processor model, network devices.

use wcprof_findings::Setting;

use crate::qemu::Machine;
use crate::report::{Out, setting};

const ID_TCG: &str = "qemu-tcg";
const ID_CPU: &str = "qemu-cpu-model";
const ID_NETWORK: &str = "qemu-network-emulated";
/// Said, never found: the report saw about no difference.
const NAME_MACHINE: &str = "qemu-machine";

pub(super) fn check(out: &mut Out<'_>, machine: &Machine) {
    accelerator(out, machine);
    let models = ["qemu64", "qemu32", "kvm64", "kvm32"];
    let model = machine
        .cpu
        .as_deref()
        .map(|c| c.split(',').next().unwrap_or(c));
    match model {
        Some(model) if models.contains(&model) => {
            let found = vec![setting("processor model", model, "-cpu")];
            out.found(ID_CPU, found, &[]);
        }
        Some(model) => out.passed(ID_CPU, format!("-cpu {model}")),
        None if is_accelerated(out, machine) == Some(true) => {
            let found = vec![setting(
                "processor model",
                "QEMU's default, qemu64",
                "no -cpu",
            )];
            out.found(ID_CPU, found, &[]);
        }
        None => {}
    }
    let emulated = [
        "e1000", "rtl8139", "ne2k_pci", "pcnet", "i8255", "tulip", "vmxnet3",
    ];
    let nics: Vec<Setting> = machine
        .devices
        .iter()
        .filter_map(|d| Some((d, d.get("driver")?)))
        .filter(|(_, driver)| emulated.iter().any(|e| driver.starts_with(e)))
        .map(|(d, driver)| {
            let id = d.get("id").or(d.get("netdev")).unwrap_or("network device");
            setting(id, driver, "-device")
        })
        .collect();
    let virtio = machine
        .devices
        .iter()
        .any(|d| d.get("driver").is_some_and(|d| d.starts_with("virtio-net")));
    out.found_or_passed(ID_NETWORK, nics, if virtio { "virtio-net" } else { "" });
    let name = machine.name.as_deref().unwrap_or("without a name");
    let kind = machine.machine.get("type").unwrap_or("QEMU's default");
    out.passed(
        NAME_MACHINE,
        format!("guest {name}, machine type {kind}; `-M q35` made about no difference in the report of 2022"),
    );
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
        all => format!("{} asked for on the command line", all.join(", ")),
    };
    match is_accelerated(out, machine) {
        Some(true) => out.passed(ID_TCG, format!("KVM; {asked}")),
        Some(false) => {
            let pid = out.snapshot.process.pid;
            let seen = out.snapshot.process.fds.as_ref().is_some_and(|f| f.n > 0);
            let origin = match seen {
                true => format!("/proc/{pid}/fd has no kvm-vm"),
                false => "-accel, -machine".into(),
            };
            let found = vec![setting("accelerator", format!("TCG; {asked}"), origin)];
            out.found(ID_TCG, found, &[]);
        }
        None => out.unknown(
            ID_TCG,
            "the command line names no accelerator, and the open files were not readable",
            "run as root: `/proc/PID/fd` shows `anon_inode:kvm-vm`",
        ),
    }
}
