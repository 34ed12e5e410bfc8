//! A virtual machine whose only disk is the image, through QEMU's own librbd driver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Daemon, IMAGE, Lab, POOL, ceph, guest, require_programs, wait_until};
use crate::process::tail;

const QEMU: &str = "qemu-system-x86_64";

/// How the machine is made.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The rbd cache of the machine's disk
    #[arg(long, value_enum, default_value_t = Cache::None)]
    pub(super) cache: Cache,
    /// Give the disk a thread of its own
    #[arg(long)]
    pub(super) iothread: bool,
    /// Run QEMU with tcmalloc
    #[arg(long)]
    pub(super) tcmalloc: bool,
    /// How the processor is made: emulated, or by /dev/kvm
    #[arg(long, value_enum, default_value_t = Accelerator::Tcg)]
    accel: Accelerator,
    /// Processes of the guest that read and write
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: u32,
    /// Bytes of one operation
    #[arg(long, default_value_t = 16384)]
    block_size: u32,
    /// Share of writes in percent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=100))]
    writes: u32,
}

impl Options {
    /// Operations of this many bytes, so many percent of them writes; everything else as by default.
    pub fn sized(block_size: u32, writes: u32) -> Self {
        Self {
            cache: Cache::None,
            iothread: false,
            tcmalloc: false,
            accel: Accelerator::Tcg,
            jobs: 32,
            block_size,
            writes,
        }
    }
}

/// The rbd cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// Off.
    None,
    /// On, and kept in `ObjectCacher`.
    Writeback,
}

/// Who runs the guest's instructions.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Accelerator {
    /// QEMU translates them.
    Tcg,
    /// The processor, through the kernel.
    Kvm,
}

/// Boots the machine and waits for its first operations.
///
/// # Errors
/// When there is no cluster, one runs already, or the guest does not report.
pub fn up(lab: &Lab, options: &Options) -> Result<()> {
    require_programs(&[QEMU])?;
    lab.require_cluster()?;
    let folder = lab.cluster();
    ensure!(
        Daemon::running(&folder, "vm")?.is_none(),
        "a virtual machine runs already: `cargo xtask lab vm-down` first"
    );
    if !guest::image(lab).exists() || !guest::initial_file_system(lab).exists() {
        guest::build(lab)?;
    }
    let console = console(lab);
    // A line of an earlier guest must not be taken for one of this.
    let _ = fs::remove_file(&console);
    let log = lab.log("vm.out");
    let machine = Daemon::start(&folder, "vm", &mut command(lab, options)?, &log)?;
    let booted = wait_until(
        "the guest reads and writes",
        Duration::from_secs(240),
        || {
            ensure!(
                machine.is_running(),
                "QEMU ended:\n{}",
                tail(&fs::read(&log).unwrap_or_default(), 10)
            );
            Ok(last_report(lab).is_some())
        },
    );
    if let Err(error) = booted {
        println!("{}", tail(&fs::read(&console).unwrap_or_default(), 10));
        machine.stop(Duration::from_secs(5))?;
        return Err(error);
    }
    println!(
        "{machine} ({:?}, cache {:?}, iothread {}, tcmalloc {})",
        options.accel, options.cache, options.iothread, options.tcmalloc
    );
    println!("guest: {}", last_report(lab).unwrap_or_default());
    Ok(())
}

/// Stops the machine if it runs.
///
/// # Errors
/// When it does not end.
pub fn down(lab: &Lab) -> Result<()> {
    match Daemon::running(&lab.cluster(), "vm")? {
        Some(machine) => machine.stop(Duration::from_secs(15)),
        None => Ok(()),
    }
}

fn console(lab: &Lab) -> PathBuf {
    lab.log("vm.console")
}

/// The last line in which the guest said how fast it is, if it reads or writes at all.
fn last_report(lab: &Lab) -> Option<String> {
    report_lines(lab).pop()
}

/// Operations a second of every five seconds in which the guest read or wrote, in order.
pub fn reports(lab: &Lab) -> Vec<f64> {
    report_lines(lab).iter().filter_map(|l| speed(l)).collect()
}

fn report_lines(lab: &Lab) -> Vec<String> {
    let text = fs::read(console(lab)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // A line is complete when the next has begun.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .filter(|line| line.starts_with("ops/s ") && !line.contains("read 0 write 0"))
        .map(|line| line.trim().to_owned())
        .collect()
}

/// The sum of `ops/s read 1291 write 0 errors 0`.
fn speed(line: &str) -> Option<f64> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| {
        words
            .by_ref()
            .skip_while(|w| *w != name)
            .nth(1)?
            .parse()
            .ok()
    };
    let (read, write): (f64, f64) = (after("read")?, after("write")?);
    Some(read + write)
}

fn command(lab: &Lab, options: &Options) -> Result<Command> {
    let folder = lab.cluster();
    let mut command = lab.command(QEMU);
    if let Some(library) = ceph::preload(options.tcmalloc)? {
        command.env("LD_PRELOAD", library);
    }
    command
        // Thread names are what libvirt's default gives, too.
        .args([
            "-name",
            "lab,debug-threads=on",
            "-machine",
            "pc",
            "-m",
            "256",
        ])
        .args(["-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none"]);
    match options.accel {
        Accelerator::Tcg => command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
        Accelerator::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
    };
    // With room for a second processor TCG keeps the guest's memory barriers; without, the disk's
    // interrupts were lost after a million requests or so.
    command.args(["-smp", "1,maxcpus=2"]);
    command
        .arg("-serial")
        .arg(format!("file:{}", console(lab).display()))
        .arg("-qmp")
        .arg(format!(
            "unix:{}/vm.qmp,server=on,wait=off",
            folder.display()
        ))
        .arg("-kernel")
        .arg(guest::image(lab))
        .arg("-initrd")
        .arg(guest::initial_file_system(lab))
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off jobs={} bs={} writes={}",
            options.jobs, options.block_size, options.writes
        ))
        .arg("-drive")
        .arg(drive(lab, options.cache));
    let device = "virtio-blk-pci,drive=disk,num-queues=1";
    if options.iothread {
        command
            .args(["-object", "iothread,id=io0", "-device"])
            .arg(format!("{device},iothread=io0"));
    } else {
        command.args(["-device", device]);
    }
    Ok(command)
}

/// Options of librados follow the image's name.
fn drive(lab: &Lab, cache: Cache) -> String {
    let (cache, policy) = match cache {
        Cache::None => ("none", ""),
        // librbd's default policy leaves ObjectCacher out.
        Cache::Writeback => ("writeback", ":rbd_cache_policy=writeback"),
    };
    format!(
        "if=none,id=disk,format=raw,cache={cache},file=rbd:{POOL}/{IMAGE}:id=admin:conf={}:\
         admin_socket={}{policy}",
        lab.conf().display(),
        lab.socket("vm").display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that reads and writes of the guest's line are added up, and that no other line is one.
    #[test]
    fn speeds() {
        assert_eq!(speed("ops/s read 1291 write 9 errors 0"), Some(1300.0));
        assert_eq!(speed("ops/s read many"), None);
    }
}
