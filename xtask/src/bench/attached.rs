//! A wcprof that records a process, to what it used and what it recorded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde::Deserialize;

use crate::cpu_time::{children_cpu_time, cpu_time};
use crate::process::{Background, capture, log_tail, log_to, result_folder};

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

/// A running wcprof. It is killed when dropped.
#[derive(Debug)]
pub struct Attached {
    process: Background,
    trace: PathBuf,
    log: PathBuf,
    /// CPU time of ended children before it was started.
    cpu_before: Duration,
    rss_bytes: u64,
}

/// What a whole recording used.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// CPU time from start to end, start-up and report included.
    pub cpu: Duration,
    /// From Ctrl-C to the end of the report.
    pub end: Duration,
    /// Peak resident memory.
    pub rss_bytes: u64,
    /// Size of the trace.
    pub trace_bytes: u64,
}

impl Attached {
    /// Starts wcprof; it records until [`Attached::stop`].
    pub fn start(recording: Recording<'_>) -> Result<Self> {
        let folder = result_folder("bench")?;
        let trace = folder.join("trace.wct");
        let log = folder.join("wcprof.log");
        // wcprof does not write over a file of another recording.
        if trace.exists() {
            fs::remove_file(&trace)?;
        }
        let cpu_before = children_cpu_time()?;
        let mut command = Command::new(recording.wcprof);
        command
            .args(["attach", &recording.pid.to_string(), "-d", "0"])
            .args(["-r", &recording.rate.to_string()])
            // The cost is measured, not limited.
            .args(["--max-cpu", "100", "--engine", recording.engine, "-o"])
            .arg(&trace);
        Ok(Self {
            process: Background::start(log_to(&mut command, &log)?)?,
            trace,
            log,
            cpu_before,
            rss_bytes: 0,
        })
    }

    /// Lets it run for `duration` and returns the CPU time that it used meanwhile.
    ///
    /// # Errors
    /// When it ends before.
    pub fn run_for(&mut self, duration: Duration) -> Result<Duration> {
        let pid = self.process.pid();
        let before = cpu_time(pid)?;
        std::thread::sleep(duration);
        self.rss_bytes = self.rss_bytes.max(peak_memory(pid));
        // The clock of a process that ended and was not waited for can still be read.
        let used = cpu_time(pid)?.saturating_sub(before);
        let runs = self.process.is_running()?;
        ensure!(runs, "wcprof does not record:\n{}", log_tail(&self.log));
        Ok(used)
    }

    /// Ends the recording as Ctrl-C does, waits for the report, and reads the trace.
    ///
    /// # Errors
    /// When wcprof fails or takes longer than a minute.
    pub fn stop(mut self, wcprof: &Path) -> Result<(Usage, Contents)> {
        let start = Instant::now();
        let (pid, rss_bytes) = (self.process.pid(), &mut self.rss_bytes);
        let status = self
            .process
            .interrupt(|| *rss_bytes = peak_memory(pid).max(*rss_bytes))?;
        let end = start.elapsed();
        let log = log_tail(&self.log);
        ensure!(status.success(), "wcprof failed: {status}\n{log}");
        let usage = Usage {
            cpu: children_cpu_time()?.saturating_sub(self.cpu_before),
            end,
            rss_bytes: self.rss_bytes,
            trace_bytes: fs::metadata(&self.trace)?.len(),
        };
        Ok((usage, contents(wcprof, &self.trace)?))
    }
}

/// Peak resident memory of a process so far, in bytes; 0 when it has ended.
fn peak_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        let value = line.strip_prefix("VmHWM:")?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.unwrap_or(0) * 1024
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
fn contents(wcprof: &Path, trace: &Path) -> Result<Contents> {
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
    let mut report = Command::new(wcprof);
    report.arg("report").arg(trace);
    let json = capture(report.args(["--format", "json", "--by", "all"]))?;
    let report: Report = serde_json::from_str(&json).context("failed to parse wcprof's JSON")?;
    let threads = report.groups.iter().flat_map(|group| &group.threads);
    Ok(Contents {
        n_thread_samples: threads.map(|thread| thread.n_ticks).sum(),
        duration: Duration::from_nanos(report.headline.duration_ns),
        engine: report.headline.engine,
        notes: report.headline.notes,
    })
}
