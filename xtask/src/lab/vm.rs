//! A virtual machine whose only disk is the cluster's image, through QEMU's own librbd driver, or a file, through io_uring.

use anyhow::{Result, ensure};
use fs_err as fs;

use super::guest;
use super::place::{IMAGE, Lab, POOL, require_programs};
use crate::process::{log_tail, wait_until};

/// How the machine is made.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where the machine's disk is
    #[arg(long, value_enum, default_value_t = Disk::Rbd)]
    pub disk: Disk,
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
    pub block_size: u64,
    /// Share of writes in percent
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub writes: u32,
    /// Operations a second at most
    #[arg(long)]
    pub iops: Option<u32>,
}

impl Options {
    /// Operations of `block_size` bytes, `writes` percent of them writes. Everything else is the default.
    pub fn uncached(block_size: u64, writes: u32) -> Self {
        Self {
            disk: Disk::Rbd,
            cache: Cache::None,
            iothread: false,
            tcmalloc: false,
            block_size,
            writes,
            iops: None,
        }
    }
}

/// Where the machine's disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Disk {
    /// The cluster's image.
    Rbd,
    /// A file of this machine, which QEMU reads and writes with `aio=io_uring`.
    IoUring,
}

/// The rbd cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// Off.
    None,
    /// On, and kept in `ObjectCacher`.
    Writeback,
}

/// The machine's serial console, among the cluster's files.
const CONSOLE: &str = "log/vm.console";

/// The disk that is a file, among the cluster's files, and its size: that of the image.
const DISK_FILE: &str = "vm.raw";
const DISK_BYTES: u64 = 1 << 30;

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
    if options.disk == Disk::IoUring {
        fs::File::create(lab.file(DISK_FILE))?.set_len(DISK_BYTES)?;
    }
    // A line of an earlier guest must not be taken for one of this.
    let _ = fs::remove_file(lab.file(CONSOLE));
    let machine = lab.start("vm", &command(lab, options), options.tcmalloc)?;
    let booted = wait_until("the guest reads and writes", 240, || {
        machine.require_running()?;
        Ok(!reports(lab).is_empty())
    });
    if let Err(error) = booted {
        println!("{}", log_tail(&lab.file(CONSOLE)));
        machine.stop(5)?;
        return Err(error);
    }
    let (pid, iops) = (machine.pid, reports(lab).pop().unwrap_or_default());
    println!("vm: pid {pid}, {options:?}; guest: {iops} IOPS");
    Ok(())
}

/// Stops the machine if it runs.
///
/// # Errors
/// When it does not end.
pub fn down(lab: &Lab) -> Result<()> {
    match lab.machine()? {
        Some(machine) => machine.stop(15),
        None => Ok(()),
    }
}

/// Operations a second of every five seconds in which the guest read or wrote, in order.
pub fn reports(lab: &Lab) -> Vec<f64> {
    let text = fs::read(lab.file(CONSOLE)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // A line is complete when the next has begun.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let speeds = complete.lines().filter_map(speed);
    speeds.filter(|speed| *speed > 0.0).collect()
}

/// The sum of `ops/s read 1291 write 0 errors 0`.
fn speed(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["ops/s", "read", read, "write", write, ..] = words[..] else {
        return None;
    };
    Some(read.parse::<f64>().ok()? + write.parse::<f64>().ok()?)
}

fn command(lab: &Lab, options: &Options) -> String {
    let cluster = lab.cluster();
    let (block_size, writes) = (options.block_size, options.writes);
    // librbd's default policy leaves ObjectCacher out.
    let (cache, policy) = match options.cache {
        Cache::None => ("none", ""),
        Cache::Writeback => ("writeback", ":rbd_cache_policy=writeback"),
    };
    let iothread = match options.iothread {
        true => ",iothread=io0 -object iothread,id=io0",
        false => "",
    };
    let disk = match options.disk {
        Disk::Rbd => format!(
            "cache={cache},file=rbd:{POOL}/{IMAGE}:id=admin:\
             conf={cluster}/ceph.conf:admin_socket={cluster}/vm.asok{policy}"
        ),
        Disk::IoUring => format!("cache=none,aio=io_uring,file={cluster}/{DISK_FILE}"),
    };
    let limit = options.iops;
    let limit = limit.map_or_else(String::new, |iops| format!(",throttling.iops-total={iops}"));
    // Thread names are what libvirt's default gives, too. With room for a second processor TCG keeps the
    // guest's memory barriers; without, the disk's interrupts were lost after a million requests or so.
    // Options of librados follow the image's name. A kernel that checks its timer while the host is busy finds that it does not
    // work, and panics.
    format!(
        "qemu-system-x86_64 -name lab,debug-threads=on -machine pc -m 256 -nodefaults -no-user-config \
         -no-reboot -display none -accel tcg,thread=multi -cpu max -smp 1,maxcpus=2 \
         -serial file:{cluster}/{CONSOLE} -qmp unix:{cluster}/vm.qmp,server=on,wait=off \
         -kernel {} -initrd {} -append \
         'console=ttyS0 quiet panic=-1 no_timer_check mitigations=off jobs=32 bs={block_size} writes={writes}' \
         -drive if=none,id=disk,format=raw,{disk}{limit} \
         -device virtio-blk-pci,drive=disk,num-queues=1{iothread}",
        guest::image(lab).display(),
        guest::initial_file_system(lab).display()
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
