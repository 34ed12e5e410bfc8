//! Load on the image: fio with librbd in its own process, and what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde::Deserialize;

use super::place::{IMAGE, Lab, POOL, require_programs};
use crate::cpu_time::{children_cpu_time, cpu_time};
use crate::process::{Background, log_tail, log_to};

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
    /// Messenger threads of fio (3 unless given)
    #[arg(long)]
    pub messengers: Option<u32>,
}

impl Options {
    /// Ten minutes of operations of this kind and size; stopped earlier by [`Load::stop`].
    pub fn sized(rw: &str, block_size: &str) -> Self {
        Self {
            seconds: 600,
            rw: rw.to_owned(),
            block_size: block_size.to_owned(),
            depth: 16,
            messengers: None,
        }
    }
}

/// What fio measured.
#[derive(Debug)]
pub struct Outcome {
    description: String,
    report: Report,
    /// CPU time of the first OSD.
    osd: Duration,
    /// CPU time of fio, librbd included.
    client: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster: {}", self.description)?;
        let mut n_ops = 0;
        for job in &self.report.jobs {
            for (name, side) in [("read", &job.read), ("write", &job.write)] {
                if side.total_ios == 0 {
                    continue;
                }
                n_ops += side.total_ios;
                writeln!(
                    f,
                    "{name}: {:.0} IOPS, mean {:.0} us, p99 {:.0} us",
                    side.iops,
                    side.clat_ns.mean / 1000.0,
                    side.clat_ns.p99() / 1000.0
                )?;
            }
        }
        let per_op = |time: Duration| time.as_secs_f64() * 1e6 / n_ops.max(1) as f64;
        write!(
            f,
            "CPU: OSD {:.1} us/op, client {:.1} us/op",
            per_op(self.osd),
            per_op(self.client)
        )
    }
}

/// The part of fio's JSON that matters here.
#[derive(Debug, Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    read: Side,
    write: Side,
}

#[derive(Debug, Deserialize)]
struct Side {
    total_ios: u64,
    iops: f64,
    clat_ns: Latency,
}

#[derive(Debug, Deserialize)]
struct Latency {
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

impl Latency {
    fn p99(&self) -> f64 {
        self.percentile.get("99.000000").copied().unwrap_or(0.0)
    }
}

/// Runs fio to its end.
///
/// # Errors
/// When there is no cluster or fio fails.
pub fn run(lab: &Lab, options: &Options) -> Result<Outcome> {
    let description = lab.require_cluster()?;
    let osd = lab.osd()?.pid;
    let (osd_before, client_before) = (cpu_time(osd)?, children_cpu_time()?);
    let mut load = Load::start(lab, options, "")?;
    let status = load.process.wait()?;
    ensure!(
        status.success(),
        "fio failed: {status}\n{}",
        log_tail(&load.log)
    );
    Ok(Outcome {
        description,
        report: parse(&fs::read_to_string(output(lab))?)?,
        osd: cpu_time(osd)?.saturating_sub(osd_before),
        client: children_cpu_time()?.saturating_sub(client_before),
    })
}

/// Where fio's JSON goes.
fn output(lab: &Lab) -> PathBuf {
    lab.cluster().join("fio.json")
}

/// A running fio. It is killed when dropped.
#[derive(Debug)]
pub struct Load {
    process: Background,
    log: PathBuf,
}

impl Load {
    /// Starts fio with further flags, separated by one space each.
    ///
    /// # Errors
    /// When it is not installed, or a virtual machine has the image open.
    pub fn start(lab: &Lab, options: &Options, flags: &str) -> Result<Self> {
        require_programs("fio")?;
        lab.require_cluster()?;
        ensure!(
            lab.machine()?.is_none(),
            "the virtual machine has the image open: `cargo xtask lab vm-down` first"
        );
        let log = lab.log("fio.out");
        let mut fio = lab.command(&format!(
            "fio --name=lab --ioengine=rbd --clientname=admin --pool={POOL} --rbdname={IMAGE} --time_based=1 \
             --norandommap=1 --randrepeat=0 --output-format=json --rw={} --bs={} --iodepth={} --runtime={}",
            options.rw, options.block_size, options.depth, options.seconds
        ));
        fio.arg(format!("--output={}", output(lab).display()))
            .args(flags.split_whitespace())
            .current_dir(lab.cluster());
        if let Some(n) = options.messengers {
            fio.env("CEPH_ARGS", format!("--ms_async_op_threads={n}"));
        }
        let process = Background::start(log_to(&mut fio, &log)?)?;
        Ok(Self { process, log })
    }

    /// Process id of fio, whose jobs are its children.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        self.process.is_running()
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

/// Lines of text may precede the JSON.
fn parse(text: &str) -> Result<Report> {
    let start = match text.starts_with('{') {
        true => 0,
        false => text.find("\n{").context("fio printed no JSON")?,
    };
    serde_json::from_str(&text[start..]).context("failed to parse the output of fio")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that figures are found behind a line of text, and that no JSON is an error.
    #[test]
    fn reports() {
        let side = r#"{"total_ios": 7, "iops": 3.5, "clat_ns": {"mean": 10.0,
            "percentile": {"99.000000": 20}}}"#;
        let text = format!("fio: note\n{{\"jobs\": [{{\"read\": {side}, \"write\": {side}}}]}}");
        let report = parse(&text).unwrap();
        assert_eq!(report.jobs[0].read.total_ios, 7);
        assert!((report.jobs[0].write.clat_ns.p99() - 20.0).abs() < 1e-9);
        assert!(parse("fio: failed").is_err());
    }

    /// Check that the CPU clock of a process that runs moves, and of none is an error.
    #[test]
    fn cpu_clocks() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = cpu_time(pid).unwrap();
        let mut x = 1_u64;
        while cpu_time(pid).unwrap() == before {
            x = std::hint::black_box(x.wrapping_mul(31));
        }
        // Above the largest process id that Linux gives.
        assert!(cpu_time(5_000_000).is_err());
    }
}
