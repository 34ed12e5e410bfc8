//! CPU time, memory and trace size of wcprof on targets whose threads mostly wait.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

use super::attached::{Attached, Recording};
use super::peers;
use super::target::Target;
use crate::markdown::table;
use crate::process::{build_release, result_folder};

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
    "Ctrl-C to end, ms",
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Ticks a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
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
    let (seconds, rate) = (options.seconds, options.rate);
    println!("\n{seconds} s at {rate} Hz; CPU times of wcprof itself\n");
    let mut rows = Vec::new();
    let mut peer_rows = Vec::new();
    for (n_threads, n_waking) in [(70, 3), (70, 10), (1000, 0)] {
        let target = Target::start(n_threads, n_waking)?;
        let name = format!("{} ({n_waking} run now and then)", target.n_threads);
        for engine in &options.engines {
            let mut cells = record(&wcprof, &target, engine, options).unwrap_or_else(|error| {
                eprintln!("{engine}: {error:#}");
                vec![engine.clone(), "failed".to_owned()]
            });
            cells.insert(0, name.clone());
            cells.resize(HEAD.len(), String::new());
            rows.push(cells);
        }
        // Debuggers need minutes for a thousand threads.
        if n_waking == 10 && !options.no_peers {
            for peer in peers::measure(&target, seconds, &result_folder("bench")?)? {
                peer_rows.push([std::slice::from_ref(&name), &peer].concat());
            }
        }
    }
    println!("{}", table(HEAD, &rows));
    println!(
        "A thread that only wakes {rate} times a second takes {:.1} us of CPU time each time.\n",
        wake_up(options)?.as_secs_f64() * 1e6
    );
    if !peer_rows.is_empty() {
        let head = ["threads", "other profiler", "us/thread-sample", ""];
        println!("{}", table(&head, &peer_rows));
    }
    Ok(())
}

/// CPU time of sleeping and waking once: what a tick costs before anything is looked at. It depends on
/// the machine, above all on a virtual one.
fn wake_up(options: &Options) -> Result<Duration> {
    let interval = Duration::from_secs(1) / options.rate;
    let n = options.seconds * options.rate;
    let cpu = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let (begin, first) = (Instant::now(), cpu()?);
    for i in 1..=n {
        std::thread::sleep((interval * i).saturating_sub(begin.elapsed()));
    }
    Ok((cpu()? - first) / n)
}

/// Records the target. Gives the cells of a row, from the engine on.
fn record(wcprof: &Path, target: &Target, engine: &str, options: &Options) -> Result<Vec<String>> {
    let mut attached = Attached::start(Recording {
        wcprof,
        pid: target.pid(),
        engine,
        rate: options.rate,
    })?;
    attached.run_for(SETTLE)?;
    // Start-up and report excluded.
    let cpu = attached.run_for(Duration::from_secs(options.seconds.into()))?;
    let (usage, contents) = attached.stop(wcprof)?;
    for note in &contents.notes {
        eprintln!("{}: {note}", contents.engine);
    }
    let seconds = f64::from(options.seconds);
    let n_samples = contents.n_thread_samples.max(1) as f64;
    // Of the ticks that fell into the watched time.
    let watched = n_samples * seconds / contents.duration.as_secs_f64();
    Ok(vec![
        contents.engine,
        format!("{:.2}", cpu.as_secs_f64() * 1e6 / watched),
        format!("{:.2}", usage.cpu.as_secs_f64() * 1e6 / n_samples),
        format!("{:.1}", cpu.as_secs_f64() * 100.0 / seconds),
        format!("{:.2}", usage.trace_bytes as f64 / n_samples),
        format!("{:.0}", usage.rss_bytes as f64 / 1e6),
        usage.end.as_millis().to_string(),
    ])
}
