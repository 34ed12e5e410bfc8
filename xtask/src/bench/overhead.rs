//! CPU time, memory and trace size of wcprof on targets whose threads mostly wait, and CPU time of other
//! profilers on the same targets.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};

use super::attached::Attached;
use super::measure::{measure, require_gnu_time};
use crate::markdown::table;
use crate::process::{Background, build_release, compile_c, is_installed, quoted, result_folder};

/// Ticks a second.
const RATE: u32 = 100;

/// Start-up is over after this.
const SETTLE: Duration = Duration::from_secs(2);

const HEAD: &[&str] = &[
    "threads",
    "engine",
    "us/thread-sample",
    "all in",
    "% of a core",
    "trace bytes/thread-sample",
    "RSS MB",
    "start, ms",
    "of it CPU",
    "Ctrl-C to end, ms",
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Engines to measure
    #[arg(long = "engine", default_values_t = ["bpf", "procfs", "procfs-only"].map(str::to_owned))]
    engines: Vec<String>,
    /// Without other profilers
    #[arg(long)]
    no_peers: bool,
}

/// Runs the command. An engine that does not work here is a row of the table.
///
/// # Errors
/// When a build or a program fails.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let program = compile_target()?;
    let seconds = options.seconds;
    println!("\n{seconds} s at {RATE} Hz; CPU times of wcprof itself\n");
    let mut rows = Vec::new();
    let mut peer_rows = Vec::new();
    for (n_threads, n_waking) in [(70, 3), (70, 10), (1000, 0)] {
        // The main thread is one of them.
        let target = start_target(&program, &[n_threads - n_waking - 1, n_waking])?;
        let name = format!("{n_threads} ({n_waking} run now and then)");
        for engine in &options.engines {
            let mut cells =
                record(&wcprof, target.pid(), engine, options).unwrap_or_else(|error| {
                    eprintln!("{engine}: {error:#}");
                    vec![engine.clone(), "failed".to_owned()]
                });
            cells.insert(0, name.clone());
            cells.resize(HEAD.len(), String::new());
            rows.push(cells);
        }
        // Debuggers need minutes for a thousand threads.
        if n_waking == 10 && !options.no_peers {
            peer_rows = peers(target.pid(), &name, seconds, n_threads)?;
        }
    }
    println!("{}", table(HEAD, &rows));
    println!(
        "A thread that only wakes {RATE} times a second takes {:.1} us of CPU time each time.\n",
        wake_up(options)?.as_secs_f64() * 1e6
    );
    if !peer_rows.is_empty() {
        let head = ["threads", "other profiler", "us/thread-sample", ""];
        println!("{}", table(&head, &peer_rows));
    }
    Ok(())
}

/// Compiles the target.
pub fn compile_target() -> Result<PathBuf> {
    let program = result_folder("bench")?.join("threads");
    compile_c("lab/threads.c", "-pthread", &program)?;
    Ok(program)
}

/// Starts the target with these arguments of `lab/threads.c`, and waits until all of it is there.
pub fn start_target(program: &Path, arguments: &[u32]) -> Result<Background> {
    let mut target = Command::new(program);
    target.args(arguments.iter().map(u32::to_string));
    // It ends when its standard input does.
    target.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut target = Background::start(&mut target)?;
    let output = target.child.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line == "ready\n", "the target says: {line}");
    Ok(target)
}

/// CPU time of sleeping and waking once: what a tick costs before anything is looked at. It depends on
/// the machine, above all on a virtual one.
fn wake_up(options: &Options) -> Result<Duration> {
    let interval = Duration::from_secs(1) / RATE;
    let n = options.seconds * RATE;
    let cpu = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let (begin, first) = (Instant::now(), cpu()?);
    for i in 1..=n {
        std::thread::sleep((interval * i).saturating_sub(begin.elapsed()));
    }
    Ok((cpu()? - first) / n)
}

/// Records the target. Returns the cells of a row, from the engine on.
fn record(wcprof: &str, pid: i32, engine: &str, options: &Options) -> Result<Vec<String>> {
    let mut attached = Attached::start(wcprof, pid, engine, RATE)?;
    let start = attached.start_cost();
    attached.run_for(SETTLE)?;
    // Start-up and report excluded.
    let cpu = attached.run_for(Duration::from_secs(options.seconds.into()))?;
    let recording = attached.stop(wcprof)?;
    for note in &recording.notes {
        eprintln!("{}: {note}", recording.engine);
    }
    let seconds = f64::from(options.seconds);
    let n_samples = recording.n_thread_samples.max(1.0);
    // Of the ticks that fell into the watched time.
    let watched = n_samples * seconds / recording.seconds;
    Ok(vec![
        recording.engine,
        format!("{:.2}", cpu.as_secs_f64() * 1e6 / watched),
        format!("{:.2}", recording.cpu.as_secs_f64() * 1e6 / n_samples),
        format!("{:.1}", cpu.as_secs_f64() * 100.0 / seconds),
        format!("{:.2}", recording.trace_bytes as f64 / n_samples),
        format!("{:.0}", recording.rss_bytes as f64 / 1e6),
        format!("{:.0}", start.wall.as_secs_f64() * 1e3),
        format!("{:.0}", start.cpu.as_secs_f64() * 1e3),
        recording.end.as_millis().to_string(),
    ])
}

/// Runs each installed profiler. Returns rows: the target, a command, its CPU time for one sample of one
/// thread in microseconds, what the figure leaves out.
fn peers(pid: i32, target: &str, seconds: u32, n_threads: u32) -> Result<Vec<Vec<String>>> {
    require_gnu_time()?;
    let file = quoted(result_folder("bench")?.join("perf.data"));
    let mut rows = Vec::new();
    for (program, flags, n_samples, note) in [
        (
            "perf",
            format!(
                "record -F 99 --call-graph dwarf -q -e cpu-clock -p {pid} -o {file} sleep {seconds}"
            ),
            99 * seconds,
            "running threads only, not unwound yet",
        ),
        ("eu-stack", format!("-p {pid}"), 1, "stops the target"),
        (
            "gdb",
            format!("-nx -batch -ex 'thread apply all bt' -p {pid}"),
            1,
            "stops the target",
        ),
    ] {
        if is_installed(program) {
            // eu-stack fails when a single frame is missing.
            let outcome = measure(600, &format!("{program} {flags} || true"))?;
            let us = outcome.cpu_seconds * 1e6 / f64::from(n_samples * n_threads);
            let cells = [target, program, &format!("{us:.1}"), note];
            rows.push(cells.map(str::to_owned).to_vec());
        }
    }
    Ok(rows)
}
