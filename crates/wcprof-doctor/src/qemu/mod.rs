//! QEMU's command line to a machine: name, accelerator, disks and what serves them.

mod disks;
mod options;

pub(crate) use disks::Disk;
pub(crate) use options::Options;

/// A virtual machine as its command line describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// `-name`.
    pub(crate) name: Option<String>,
    /// `-machine`.
    pub(crate) machine: Options,
    /// `-cpu`.
    pub(crate) cpu: Option<String>,
    /// `-accel`, `-enable-kvm` and `-machine accel=`, best first.
    pub(crate) accelerators: Vec<String>,
    /// `-device`.
    pub(crate) devices: Vec<Options>,
    /// `-object`.
    pub(crate) objects: Vec<Options>,
    /// Disks of the guest.
    pub(crate) disks: Vec<Disk>,
}

/// Whether this is the command line of a system emulator.
pub(crate) fn is_qemu(args: &[String]) -> bool {
    let program = args.first().and_then(|a| a.rsplit('/').next());
    program
        .is_some_and(|p| p.starts_with("qemu-system-") || matches!(p, "qemu-kvm" | "kvm" | "qemu"))
}

/// Parses a command line. Unknown options are left out.
pub(crate) fn parse(args: &[String]) -> Machine {
    let mut machine = Machine::default();
    let mut lines = disks::Lines::default();
    let program = args.first().and_then(|a| a.rsplit('/').next());
    let mut args = args.iter().skip(1).peekable();
    while let Some(arg) = args.next() {
        // QEMU takes one dash or two.
        let Some(option) = arg.strip_prefix('-') else {
            continue;
        };
        let option = option.strip_prefix('-').unwrap_or(option);
        if option == "enable-kvm" {
            machine.accelerators.push("kvm".into());
            continue;
        }
        let Some(value) = args.peek().filter(|v| !v.starts_with('-')) else {
            continue;
        };
        match option {
            "name" => {
                let name = Options::parse(value, "guest");
                machine.name = name.get("guest").map(str::to_owned);
            }
            "machine" | "M" => {
                let options = Options::parse(value, "type");
                let accel = options.get("accel").unwrap_or_default();
                let listed = accel.split(':').filter(|a| !a.is_empty());
                machine.accelerators.extend(listed.map(str::to_owned));
                machine.machine.merge(options);
            }
            "accel" => {
                let options = Options::parse(value, "accel");
                let accel = options.get("accel").map(str::to_owned);
                machine.accelerators.extend(accel);
            }
            "cpu" => machine.cpu = Some((*value).clone()),
            "device" => machine.devices.push(Options::parse(value, "driver")),
            "object" => machine.objects.push(Options::parse(value, "qom-type")),
            "drive" => lines.drives.push(Options::parse(value, "file")),
            "blockdev" => lines.nodes.push(Options::parse(value, "driver")),
            "hda" | "hdb" | "hdc" | "hdd" => lines.ide.push((*value).clone()),
            _ => continue,
        }
        args.next();
    }
    // Distributions ship a QEMU under this name that takes KVM by itself.
    if machine.accelerators.is_empty() && matches!(program, Some("qemu-kvm" | "kvm")) {
        machine.accelerators.push("kvm".into());
    }
    machine.disks = lines.disks(&machine.devices, machine.machine.get("type"));
    machine
}

impl Machine {
    /// Ids of `-object iothread`.
    pub(crate) fn iothreads(&self) -> Vec<&str> {
        self.objects
            .iter()
            .filter(|o| o.get("qom-type") == Some("iothread"))
            .filter_map(|o| o.get("id"))
            .collect()
    }
}

#[cfg(test)]
mod tests;
