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
    /// Memory of the guest in MiB, when it is given as a plain number.
    pub(crate) memory_mib: Option<u64>,
    /// `-mem-path`.
    pub(crate) mem_path: Option<String>,
    /// Disks of the guest.
    pub(crate) disks: Vec<Disk>,
}

/// Whether this is the command line of a system emulator.
pub(crate) fn is_qemu(args: &[String]) -> bool {
    let program = args.first().and_then(|a| a.rsplit('/').next());
    program
        .is_some_and(|p| p.starts_with("qemu-system-") || matches!(p, "qemu-kvm" | "kvm" | "qemu"))
}

/// Reads a command line. Options that are not understood are left out.
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
                machine
                    .accelerators
                    .extend(options.get("accel").map(str::to_owned));
            }
            "cpu" => machine.cpu = Some((*value).clone()),
            "device" => machine.devices.push(Options::parse(value, "driver")),
            "object" => machine.objects.push(Options::parse(value, "qom-type")),
            "m" => {
                let size = Options::parse(value, "size");
                machine.memory_mib = size.get("size").and_then(mebibytes);
            }
            "mem-path" => machine.mem_path = Some((*value).clone()),
            "drive" => lines.drives.push(Options::parse(value, "file")),
            "blockdev" => lines.nodes.push(Options::parse(value, "driver")),
            "hda" | "hdb" | "hdc" | "hdd" => lines.ide.push((*value).clone()),
            "readconfig" => lines.incomplete = true,
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

/// `4096`, `4096M`, `4G`.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let n: u64 = digits.parse().ok()?;
    match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => Some(n),
        "k" | "kb" | "kib" => Some(n / 1024),
        "g" | "gb" | "gib" => n.checked_mul(1024),
        "t" | "tb" | "tib" => n.checked_mul(1 << 20),
        _ => None,
    }
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
