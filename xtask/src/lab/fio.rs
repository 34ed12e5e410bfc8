//! Load on the image: fio with librbd in its own process.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::place::{IMAGE, Lab, POOL, require_programs};
use crate::process::{Background, capture_json, execute, log_tail, log_to, number};

/// What fio does.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Length in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// read, write, randread, randwrite or randrw
    #[arg(long, default_value = "randread")]
    pub rw: String,
    /// Bytes of one operation, as in 16k
    #[arg(long, default_value = "16k")]
    pub block_size: String,
    /// Operations in flight
    #[arg(long, default_value_t = 32)]
    pub depth: u32,
    /// Messenger threads of fio
    #[arg(long, default_value_t = 3)]
    pub messengers: u32,
}

impl Options {
    /// Ten minutes of operations of this kind and size; stopped earlier by [`Load::stop`].
    pub fn sized(rw: &str, block_size: &str) -> Self {
        Self {
            seconds: 600,
            rw: rw.to_owned(),
            block_size: block_size.to_owned(),
            depth: 16,
            messengers: 3,
        }
    }
}

/// Runs fio to its end. It prints speed, latencies and CPU time.
///
/// # Errors
/// As [`Load::start`], or when fio fails.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    println!("cluster: {}", lab.require_cluster()?);
    execute(command(lab, options, "")?)
}

fn command(lab: &Lab, options: &Options, flags: &str) -> Result<Command> {
    require_programs("fio")?;
    lab.require_cluster()?;
    ensure!(
        lab.machine()?.is_none(),
        "the virtual machine has the image open: `cargo xtask lab vm-down` first"
    );
    let mut fio = lab.command(&format!(
        "fio --name=lab --ioengine=rbd --clientname=admin --pool={POOL} --rbdname={IMAGE} --time_based=1 \
         --norandommap=1 --randrepeat=0 --rw={} --bs={} --iodepth={} --runtime={} {flags}",
        options.rw, options.block_size, options.depth, options.seconds
    ));
    let messengers = format!("--ms_async_op_threads={}", options.messengers);
    fio.env("CEPH_ARGS", messengers).current_dir(lab.cluster());
    Ok(fio)
}

/// Runs fio to its end without a cache in front of the cluster, and gives how many operations it did.
///
/// # Errors
/// As [`Load::start`], or when fio fails.
pub fn count(lab: &Lab, options: &Options) -> Result<f64> {
    let mut fio = command(lab, options, "--output-format=json")?;
    let messengers = options.messengers;
    let flags = format!("--ms_async_op_threads={messengers} --rbd_cache=false");
    let report = capture_json(fio.env("CEPH_ARGS", flags))?;
    let job = &report["jobs"][0];
    let done = ["read", "write"].map(|kind| number(&job[kind]["total_ios"]));
    Ok(done.iter().sum())
}

/// A running fio. It is killed when dropped.
#[derive(Debug)]
pub struct Load {
    /// fio, whose jobs are its children.
    pub process: Background,
    log: PathBuf,
}

impl Load {
    /// Starts fio with further flags.
    ///
    /// # Errors
    /// When it is not installed, or a virtual machine has the image open.
    pub fn start(lab: &Lab, options: &Options, flags: &str) -> Result<Self> {
        let log = lab.file("log/fio.out");
        let mut fio = command(lab, options, flags)?;
        let process = Background::start(log_to(&mut fio, &log)?)?;
        Ok(Self { process, log })
    }

    /// Ends it before its time; it still writes its logs.
    ///
    /// # Errors
    /// When it fails.
    pub fn stop(mut self) -> Result<()> {
        let status = self.process.interrupt(|| ())?;
        // 128 says that it was interrupted.
        ensure!(
            status.success() || status.code() == Some(128),
            "fio failed: {status}\n{}",
            log_tail(&self.log)
        );
        Ok(())
    }
}
