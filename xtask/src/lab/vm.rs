//! A virtual machine whose only disk is the image, through QEMU's own librbd driver.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use fs_err as fs;

use super::daemon::Daemon;
use super::guest;
use super::place::{IMAGE, Lab, POOL, preload_tcmalloc, require_programs};
use crate::process::{log_tail, wait_until};

/// How the machine is made.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The rbd cache of the machine's disk
    #[arg(long, value_enum, default_value_t = Cache::None)]
    pub cache: Cache,
    /// Give the disk a thread of its own
    #[arg(long)]
    pub iothread: bool,
    /// Run QEMU with tcmalloc
    #[arg(long)]
    pub tcmalloc: bool,
    /// Bytes of one operation
    #[arg(long, default_value_t = 16384)]
    block_size: u32,
    /// Share of writes in percent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=100))]
    writes: u32,
}

impl Options {
    /// Operations of `block_size` bytes, `writes` percent of them writes. Everything else is the default.
    pub fn sized(block_size: u32, writes: u32) -> Self {
        Self {
            cache: Cache::None,
            iothread: false,
            tcmalloc: false,
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

/// Boots the machine and waits for its first operations.
///
/// # Errors
/// When there is no cluster, one runs already, or the guest does not report.
pub fn up(lab: &Lab, options: &Options) -> Result<()> {
    require_programs("qemu-system-x86_64")?;
    lab.require_cluster()?;
    ensure!(
        lab.machine()?.is_none(),
        "a virtual machine runs already: `cargo xtask lab vm-down` first"
    );
    if !guest::image(lab).exists() || !guest::initial_file_system(lab).exists() {
        guest::build(lab)?;
    }
    let console = console(lab);
    // A line of an earlier guest must not be taken for one of this.
    let _ = fs::remove_file(&console);
    let log = lab.log("vm.out");
    let machine = Daemon::start(&lab.cluster(), "vm", &mut command(lab, options)?, &log)?;
    let patience = Duration::from_secs(240);
    let booted = wait_until("the guest reads and writes", patience, || {
        machine.require_running(&log)?;
        Ok(!report_lines(lab).is_empty())
    });
    if let Err(error) = booted {
        println!("{}", log_tail(&console));
        machine.stop(Duration::from_secs(5))?;
        return Err(error);
    }
    println!(
        "{machine} (cache {:?}, iothread {}, tcmalloc {})",
        options.cache, options.iothread, options.tcmalloc
    );
    println!("guest: {}", report_lines(lab).pop().unwrap_or_default());
    Ok(())
}

/// Stops the machine if it runs.
///
/// # Errors
/// When it does not end.
pub fn down(lab: &Lab) -> Result<()> {
    match lab.machine()? {
        Some(machine) => machine.stop(Duration::from_secs(15)),
        None => Ok(()),
    }
}

fn console(lab: &Lab) -> PathBuf {
    lab.log("vm.console")
}

/// Operations a second of every five seconds in which the guest read or wrote, in order.
pub fn reports(lab: &Lab) -> Vec<f64> {
    report_lines(lab).iter().filter_map(|l| speed(l)).collect()
}

/// Complete lines in which the guest said how fast it is, if it reads or writes at all.
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
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["ops/s", "read", read, "write", write, ..] = words[..] else {
        return None;
    };
    Some(read.parse::<f64>().ok()? + write.parse::<f64>().ok()?)
}

fn command(lab: &Lab, options: &Options) -> Result<Command> {
    let cluster = lab.cluster();
    // Thread names are what libvirt's default gives, too. With room for a second processor TCG keeps the
    // guest's memory barriers; without, the disk's interrupts were lost after a million requests or so.
    let mut command = lab.command(
        "qemu-system-x86_64 -name lab,debug-threads=on -machine pc -m 256 -nodefaults -no-user-config \
         -no-reboot -display none -accel tcg,thread=multi -cpu max -smp 1,maxcpus=2",
    );
    if options.tcmalloc {
        preload_tcmalloc(&mut command)?;
    }
    for (flag, value) in [
        ("-serial", format!("file:{}", console(lab).display())),
        (
            "-qmp",
            format!("unix:{}/vm.qmp,server=on,wait=off", cluster.display()),
        ),
        ("-kernel", guest::image(lab).display().to_string()),
        (
            "-initrd",
            guest::initial_file_system(lab).display().to_string(),
        ),
        (
            "-append",
            format!(
                "console=ttyS0 quiet panic=-1 mitigations=off jobs=32 bs={} writes={}",
                options.block_size, options.writes
            ),
        ),
        ("-drive", drive(lab, options.cache)),
    ] {
        command.args([flag, &value]);
    }
    let device = "virtio-blk-pci,drive=disk,num-queues=1";
    match options.iothread {
        true => command
            .args(["-object", "iothread,id=io0", "-device"])
            .arg(format!("{device},iothread=io0")),
        false => command.args(["-device", device]),
    };
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
