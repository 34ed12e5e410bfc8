//! Load on the image: fio with librbd in its own process, and what it says.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde::Deserialize;

use super::{IMAGE, Lab, POOL, require_programs};
use crate::process::tail;

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
    /// Run fio with tcmalloc
    #[arg(long)]
    pub tcmalloc: bool,
    /// Messenger threads of fio (3 unless given)
    #[arg(long)]
    pub messengers: Option<u32>,
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
    percentile: std::collections::BTreeMap<String, f64>,
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
    let load = Load::start(lab, options, &[])?;
    let report = load.wait()?;
    Ok(Outcome {
        description,
        report,
        osd: cpu_time(osd)?.saturating_sub(osd_before),
        client: children_cpu_time()?.saturating_sub(client_before),
    })
}

/// A running fio; it is killed when dropped early.
#[derive(Debug)]
pub struct Load {
    child: Child,
    output: PathBuf,
    log: PathBuf,
}

impl Load {
    /// Starts fio.
    ///
    /// # Errors
    /// When it is not installed, does not know librbd, or a virtual machine has the image open.
    pub fn start(lab: &Lab, options: &Options, more: &[String]) -> Result<Self> {
        require_programs(&["fio"])?;
        lab.require_cluster()?;
        ensure!(
            super::Daemon::running(&lab.cluster(), "vm")?.is_none(),
            "the virtual machine has the image open: `cargo xtask lab vm-down` first"
        );
        let output = lab.cluster().join("fio.json");
        let log = lab.log("fio.out");
        let file = fs::File::create(&log)
            .with_context(|| format!("failed to create `{}`", log.display()))?;
        let errors = file
            .try_clone()
            .with_context(|| format!("failed to open `{}`", log.display()))?;
        let mut command = lab.command("fio");
        command
            .args(["--name=lab", "--ioengine=rbd", "--clientname=admin"])
            .arg(format!("--pool={POOL}"))
            .arg(format!("--rbdname={IMAGE}"))
            .arg(format!("--rw={}", options.rw))
            .arg(format!("--bs={}", options.block_size))
            .arg(format!("--iodepth={}", options.depth))
            .arg(format!("--runtime={}", options.seconds))
            .args(["--time_based=1", "--norandommap=1", "--randrepeat=0"])
            .arg("--output-format=json")
            .arg(format!("--output={}", output.display()))
            .args(more)
            .current_dir(lab.cluster());
        if let Some(library) = super::ceph::preload(options.tcmalloc)? {
            command.env("LD_PRELOAD", library);
        }
        if let Some(n) = options.messengers {
            command.env("CEPH_ARGS", format!("--ms_async_op_threads={n}"));
        }
        let child = spawn(&mut command, file, errors)?;
        Ok(Self { child, output, log })
    }

    /// Process id of fio, whose jobs are its children.
    ///
    /// # Errors
    /// Never on Linux.
    pub fn pid(&self) -> Result<i32> {
        i32::try_from(self.child.id()).context("process id out of range")
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When that can not be found out.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self
            .child
            .try_wait()
            .context("failed to wait for fio")?
            .is_none())
    }

    fn wait(mut self) -> Result<Report> {
        self.finish()?;
        let text = fs::read_to_string(&self.output)
            .with_context(|| format!("failed to read `{}`", self.output.display()))?;
        parse(&text)
    }

    /// Ends it before its time; it still writes its logs.
    ///
    /// # Errors
    /// When it fails.
    pub fn stop(mut self) -> Result<()> {
        let pid = self.pid()?;
        kill(Pid::from_raw(pid), Signal::SIGINT).context("failed to interrupt fio")?;
        let status = self.child.wait().context("failed to wait for fio")?;
        // 128 says that it was interrupted.
        ensure!(
            status.success() || status.code() == Some(128),
            "fio failed: {status}\n{}",
            tail(&fs::read(&self.log).unwrap_or_default(), 10)
        );
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let status = self.child.wait().context("failed to wait for fio")?;
        ensure!(
            status.success(),
            "fio failed: {status}\n{}",
            tail(&fs::read(&self.log).unwrap_or_default(), 10)
        );
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn spawn(command: &mut Command, output: fs::File, errors: fs::File) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .context("failed to run `fio`")
}

/// Lines of text may precede the JSON.
fn parse(text: &str) -> Result<Report> {
    let start = if text.starts_with('{') {
        0
    } else {
        text.find("\n{").context("fio printed no JSON")?
    };
    serde_json::from_str(&text[start..]).context("failed to parse the output of fio")
}

/// CPU time of a process so far, all its threads, those that have ended too.
///
/// # Errors
/// When the process has ended.
pub fn cpu_time(pid: i32) -> Result<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid))
        .with_context(|| format!("failed to find the CPU clock of process {pid}"))?;
    let time = clock_gettime(clock)
        .with_context(|| format!("failed to read the CPU clock of process {pid}"))?;
    Ok(time.into())
}

/// CPU time of all children that were waited for.
///
/// # Errors
/// Never on Linux.
pub fn children_cpu_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("failed to read the usage")?;
    let micros = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec()).unwrap_or(0)
    };
    Ok(Duration::from_micros(
        micros(usage.user_time()) + micros(usage.system_time()),
    ))
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
