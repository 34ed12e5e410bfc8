//! A wcprof that records, what it uses, and what it recorded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::lab::fio::{children_cpu_time, cpu_time};
use crate::process::{capture, tail, target_folder};

/// How to record.
#[derive(Debug, Clone, Copy)]
pub struct Recording<'a> {
    /// The optimized program.
    pub wcprof: &'a Path,
    /// The target.
    pub pid: i32,
    /// As for `--engine`.
    pub engine: &'a str,
    /// Ticks a second.
    pub rate: u32,
}

/// A running wcprof; it is killed when dropped early.
#[derive(Debug)]
pub struct Attached {
    child: Child,
    trace: PathBuf,
    log: PathBuf,
    /// Of children, before it was started.
    cpu_before: Duration,
    rss_bytes: u64,
}

/// What a whole run used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time from start to end, start-up and report included.
    pub cpu: Duration,
    /// Most resident memory seen.
    pub rss_bytes: u64,
    /// Size of the trace.
    pub trace_bytes: u64,
}

impl Attached {
    /// Starts wcprof; it records until [`Attached::stop`].
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(recording: Recording<'_>) -> Result<Self> {
        let folder = target_folder()?.join("bench");
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create `{}`", folder.display()))?;
        let trace = folder.join("trace.wct");
        let log = folder.join("wcprof.log");
        // wcprof does not write over a file of another recording.
        if trace.exists() {
            fs::remove_file(&trace)
                .with_context(|| format!("failed to remove `{}`", trace.display()))?;
        }
        let errors =
            File::create(&log).with_context(|| format!("failed to create `{}`", log.display()))?;
        let cpu_before = children_cpu_time()?;
        let child = Command::new(recording.wcprof)
            .args(["attach", &recording.pid.to_string(), "-d", "0"])
            .args(["-r", &recording.rate.to_string()])
            // The cost is measured, not bounded.
            .args(["--max-cpu", "100", "--engine", recording.engine, "-o"])
            .arg(&trace)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("failed to run `{}`", recording.wcprof.display()))?;
        Ok(Self {
            child,
            trace,
            log,
            cpu_before,
            rss_bytes: 0,
        })
    }

    /// Lets it run for a while and returns the CPU time it used meanwhile.
    ///
    /// # Errors
    /// When it ends.
    pub fn watch(&mut self, duration: Duration) -> Result<Duration> {
        let pid = self.pid()?;
        let before = self.or_log(cpu_time(pid))?;
        std::thread::sleep(duration);
        self.or_log(self.still_runs(pid))?;
        self.rss_bytes = self.rss_bytes.max(resident_peak(pid));
        Ok(self.or_log(cpu_time(pid))?.saturating_sub(before))
    }

    /// Ends the recording as Ctrl-C does, and waits for the report.
    ///
    /// # Errors
    /// When it fails or takes longer than a minute.
    pub fn stop(mut self) -> Result<(Usage, Duration)> {
        let pid = self.pid()?;
        let start = Instant::now();
        kill(Pid::from_raw(pid), Signal::SIGINT).context("failed to interrupt wcprof")?;
        let status = loop {
            self.rss_bytes = self.rss_bytes.max(resident_peak(pid));
            if let Some(status) = self.child.try_wait().context("failed to wait for wcprof")? {
                break status;
            }
            if start.elapsed() > Duration::from_secs(60) {
                bail!("wcprof does not end after SIGINT");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let elapsed = start.elapsed();
        ensure!(
            status.success(),
            "wcprof failed: {status}\n{}",
            self.log_tail()
        );
        let trace_bytes = fs::metadata(&self.trace)
            .with_context(|| format!("failed to examine `{}`", self.trace.display()))?
            .len();
        let usage = Usage {
            cpu: children_cpu_time()?.saturating_sub(self.cpu_before),
            rss_bytes: self.rss_bytes,
            trace_bytes,
        };
        Ok((usage, elapsed))
    }

    /// Where the trace is.
    pub fn trace(&self) -> PathBuf {
        self.trace.clone()
    }

    fn pid(&self) -> Result<i32> {
        i32::try_from(self.child.id()).context("process id out of range")
    }

    /// A process that ended and was not waited for still has a CPU clock.
    fn still_runs(&self, pid: i32) -> Result<()> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        ensure!(!matches!(state, None | Some('Z' | 'X')), "wcprof has ended");
        Ok(())
    }

    fn or_log<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("wcprof does not record:\n{}", self.log_tail()))
    }

    fn log_tail(&self) -> String {
        tail(&fs::read(&self.log).unwrap_or_default(), 10)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Most resident memory of a process so far, bytes; zero when it has ended.
fn resident_peak(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// What a trace holds.
#[derive(Debug)]
pub struct Contents {
    /// Threads times ticks.
    pub n_thread_samples: u64,
    /// Length of the recording.
    pub duration: Duration,
    /// The engine that recorded.
    pub engine: String,
    /// What wcprof has to say about the recording.
    pub notes: Vec<String>,
}

/// Reads a trace through `wcprof report`.
///
/// # Errors
/// When wcprof fails.
pub fn contents(wcprof: &Path, trace: &Path) -> Result<Contents> {
    #[derive(Deserialize)]
    struct Report {
        headline: Headline,
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Headline {
        engine: String,
        duration_ns: u64,
        notes: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Group {
        threads: Vec<Thread>,
    }
    #[derive(Deserialize)]
    struct Thread {
        n_ticks: u64,
    }
    let json = capture(
        Command::new(wcprof)
            .arg("report")
            .arg(trace)
            .args(["--format", "json", "--by", "all"]),
    )?;
    let report: Report = serde_json::from_str(&json).context("failed to parse wcprof's JSON")?;
    let threads = report.groups.iter().flat_map(|group| &group.threads);
    Ok(Contents {
        n_thread_samples: threads.map(|thread| thread.n_ticks).sum(),
        duration: Duration::from_nanos(report.headline.duration_ns),
        engine: report.headline.engine,
        notes: report.headline.notes,
    })
}
