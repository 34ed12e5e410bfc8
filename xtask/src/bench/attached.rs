//! A wcprof that records a process, to what it used and what it recorded.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::cpu_time::{children_cpu_time, cpu_time};
use crate::process::{
    Background, capture_json, command, list, log_tail, log_to, number, poll_until, quoted,
    result_folder, text,
};

/// A running wcprof. It is killed when dropped.
#[derive(Debug)]
pub struct Attached {
    process: Background,
    /// The process that does the work: wcprof's child.
    worker: i32,
    trace: PathBuf,
    log: PathBuf,
    start: Start,
    /// CPU time of ended children before it was started.
    cpu_before: Duration,
    /// Threads that this machine had started by then.
    n_begun_before: u64,
    rss_bytes: u64,
}

/// What it took until every thread was sampled once.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub wall: Duration,
    pub cpu: Duration,
}

/// What a whole recording used, and what it holds.
#[derive(Debug)]
pub struct Recording {
    /// CPU time from start to end, start-up and report included.
    pub cpu: Duration,
    /// From Ctrl-C to the end of the report.
    pub end: Duration,
    /// Peak resident memory.
    pub rss_bytes: u64,
    /// Size of the trace.
    pub trace_bytes: u64,
    /// Ticks, as far as the thread that was seen most tells.
    pub n_ticks: f64,
    /// Threads times ticks.
    pub n_thread_samples: f64,
    /// Threads that were seen.
    pub n_threads: usize,
    /// Threads that began on this machine meanwhile, those of other programs among them.
    pub n_begun: u64,
    /// CPU time of threads that began and ended unseen, ns.
    pub unseen_cpu_ns: f64,
    /// Length of the recording.
    pub seconds: f64,
    /// The engine that recorded.
    pub engine: String,
    /// wcprof's notes on the recording.
    pub notes: Vec<String>,
}

impl Attached {
    /// Starts wcprof, which records `pid` at `rate` Hz until [`Attached::stop`]. The cost is measured, not limited.
    pub fn start(wcprof: &str, pid: i32, engine: &str, rate: u32) -> Result<Self> {
        let arguments = format!("{pid} -r {rate} --max-cpu 100 --engine {engine}");
        Self::with_arguments(wcprof, &arguments)
    }

    /// The same with other arguments of `attach`.
    pub fn with_arguments(wcprof: &str, arguments: &str) -> Result<Self> {
        let folder = result_folder("bench")?;
        let (trace, log) = (folder.join("trace.wct"), folder.join("wcprof.log"));
        // wcprof does not write over a file of another recording.
        if trace.exists() {
            fs::remove_file(&trace)?;
        }
        let cpu_before = children_cpu_time()?;
        let n_begun_before = n_begun()?;
        let mut attach = command(&format!(
            "{wcprof} attach {arguments} -d 0 --force -o {}",
            quoted(&trace)
        ));
        let begin = Instant::now();
        let process = Background::start(log_to(&mut attach, &log)?)?;
        let mut worker = None;
        let wait = Duration::from_millis(1);
        let sampling = poll_until("the first sample", 60, wait, || {
            worker = worker.or_else(|| child_of(process.pid()));
            Ok(worker.is_some_and(has_sampled))
        });
        let wall = begin.elapsed();
        sampling.with_context(|| log_tail(&log))?;
        let worker = worker.context("wcprof has no child")?;
        let cpu = cpu_time(process.pid())? + cpu_time(worker)?;
        Ok(Self {
            worker,
            process,
            start: Start { wall, cpu },
            trace,
            log,
            cpu_before,
            n_begun_before,
            rss_bytes: 0,
        })
    }

    /// What it took to start.
    pub fn start_cost(&self) -> Start {
        self.start
    }

    /// The process that does the work.
    pub fn worker(&self) -> i32 {
        self.worker
    }

    /// Lets it run for `duration` and returns the CPU time that it used meanwhile.
    ///
    /// # Errors
    /// When it ends before.
    pub fn run_for(&mut self, duration: Duration) -> Result<Duration> {
        let pid = self.worker;
        let before = cpu_time(pid)?;
        std::thread::sleep(duration);
        self.rss_bytes = self.rss_bytes.max(peak_memory(pid));
        // The clock of a process that ended and was not waited for can still be read.
        let used = cpu_time(pid)?.saturating_sub(before);
        let running = self.process.require_running();
        running.with_context(|| log_tail(&self.log))?;
        Ok(used)
    }

    /// Ends the recording as Ctrl-C does, waits for the report, and reads the trace.
    ///
    /// # Errors
    /// When wcprof fails or takes longer than a minute.
    pub fn stop(mut self, wcprof: &str) -> Result<Recording> {
        let start = Instant::now();
        let (pid, rss_bytes) = (self.worker, &mut self.rss_bytes);
        let status = self
            .process
            .interrupt(|| *rss_bytes = peak_memory(pid).max(*rss_bytes))?;
        let (end, log) = (start.elapsed(), log_tail(&self.log));
        ensure!(status.success(), "wcprof failed: {status}\n{log}");
        let n_begun = n_begun()?.saturating_sub(self.n_begun_before);
        let cpu = children_cpu_time()?.saturating_sub(self.cpu_before);
        let report = format!("{wcprof} report --json --by all {}", quoted(&self.trace));
        let report = capture_json(command(&report))?;
        let headline = &report["headline"];
        let threads = list(&report["groups"]).flat_map(|group| list(&group["threads"]));
        // Tid 0 stands for threads that were never seen.
        let (unseen, seen): (Vec<_>, Vec<_>) =
            threads.partition(|thread| number(&thread["tid"]) == 0.0);
        let n_ticks: Vec<f64> = seen.iter().map(|t| number(&t["n_ticks"])).collect();
        Ok(Recording {
            cpu,
            end,
            rss_bytes: self.rss_bytes,
            n_ticks: n_ticks.iter().copied().fold(0.0, f64::max),
            trace_bytes: fs::metadata(&self.trace)?.len(),
            n_thread_samples: n_ticks.iter().sum(),
            n_threads: seen.len(),
            n_begun,
            // The sum of no numbers is -0.0.
            unseen_cpu_ns: unseen
                .iter()
                .fold(0.0, |sum, t| sum + number(&t["observed_ns"])),
            seconds: number(&headline["duration_ns"]) / 1e9,
            engine: text(&headline["engine"]).to_owned(),
            notes: list(&headline["notes"])
                .map(|note| text(note).to_owned())
                .collect(),
        })
    }
}

/// The first child of a process.
fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Whether the thread of this wcprof that samples has begun to wait for its second tick.
fn has_sampled(worker: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{worker}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.contains("(wcprof-sampler) S ")
    })
}

/// Threads that this machine has started so far.
fn n_begun() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let count = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    Ok(count.context("no `processes` in /proc/stat")?.parse()?)
}

/// Peak resident memory of a process so far, in bytes; 0 when it has ended.
fn peak_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status.split_once("VmHWM:").map_or("", |(_, value)| value);
    let kib = value
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0) * 1024
}
