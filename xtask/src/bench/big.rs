//! What wcprof costs and misses on large targets: many threads, processes, mappings, and threads that come and go.

use std::time::Duration;

use anyhow::Result;
use fs_err as fs;

use super::attached::Attached;
use super::overhead::{compile_target, start_target};
use crate::markdown::table;
use crate::process::{Background, build_release};

/// Start-up is over after so many seconds.
const SETTLE: usize = 3;

const HEAD: &[&str] = &[
    "target",
    "engine",
    "start, % of a core in each second",
    "then, % of a core",
    "RSS MB",
    "descriptors",
    "ticks a second",
    "thread-samples a second",
    "threads begun, seen",
    "CPU of unseen threads, % of a core",
    "notes",
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Engines to measure
    #[arg(long = "engine", default_values_t = ["bpf", "procfs"].map(str::to_owned))]
    engines: Vec<String>,
}

/// Each of them `n_processes` times, with these arguments of `lab/threads.c`.
const TARGETS: [(&str, usize, [u32; 4]); 4] = [
    (
        "10 000 threads, 20 of them run now and then",
        1,
        [9980, 20, 0, 0],
    ),
    (
        "200 processes of 10 threads, all blocked",
        200,
        [9, 0, 0, 0],
    ),
    (
        "60 000 mappings, 20 threads, 10 run now and then",
        1,
        [10, 10, 60_000, 0],
    ),
    ("5000 new threads a second", 1, [20, 5, 0, 5000]),
];

/// Runs the command. An engine that does not work here is a row of the table.
///
/// # Errors
/// When a build or the targets fail.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let program = compile_target()?;
    println!(
        "\n{} s at 99 Hz with the default limit of 20 % of a core\n",
        options.seconds
    );
    let mut rows = Vec::new();
    for (name, n_processes, arguments) in TARGETS {
        let targets: Vec<Background> = (0..n_processes)
            .map(|_| start_target(&program, &arguments))
            .collect::<Result<_>>()?;
        let pids: Vec<String> = targets.iter().map(|t| t.pid().to_string()).collect();
        for engine in &options.engines {
            let mut cells =
                record(&wcprof, &pids.join(" "), engine, options).unwrap_or_else(|error| {
                    eprintln!("{engine}: {error:#}");
                    vec![engine.clone(), "failed".to_owned()]
                });
            cells.insert(0, name.to_owned());
            println!("{}", cells.join(" | "));
            cells.resize(HEAD.len(), String::new());
            rows.push(cells);
        }
    }
    println!("{}", table(HEAD, &rows));
    Ok(())
}

fn record(wcprof: &str, pids: &str, engine: &str, options: &Options) -> Result<Vec<String>> {
    let mut attached = Attached::with_arguments(wcprof, &format!("{pids} --engine {engine}"))?;
    let percent = |cpu: Duration, of: f64| format!("{:.1}", cpu.as_secs_f64() * 100.0 / of);
    let start: Vec<String> = (0..SETTLE)
        .map(|_| Ok(percent(attached.run_for(Duration::from_secs(1))?, 1.0)))
        .collect::<Result<_>>()?;
    let cpu = attached.run_for(Duration::from_secs(options.seconds.into()))?;
    let n_files = fs::read_dir(format!("/proc/{}/fd", attached.worker()))?.count();
    let recording = attached.stop(wcprof)?;
    Ok(vec![
        recording.engine,
        start.join(", "),
        percent(cpu, options.seconds.into()),
        format!("{:.0}", recording.rss_bytes as f64 / 1e6),
        n_files.to_string(),
        format!("{:.0}", recording.n_ticks / recording.seconds),
        format!("{:.0}", recording.n_thread_samples / recording.seconds),
        format!("{}, {}", recording.n_begun, recording.n_threads),
        format!("{:.1}", recording.unseen_cpu_ns / recording.seconds / 1e7),
        recording.notes.join("; "),
    ])
}
