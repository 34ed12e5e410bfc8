//! CPU time, memory and trace size of wcprof on targets whose threads mostly wait.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::time::{ClockId, clock_gettime};

use super::attached::{Attached, Contents, Recording, Usage, contents};
use super::peers;
use super::table::markdown;
use super::target::Target;
use crate::process::{build_release, target_folder};

/// Start-up is over after this.
const SETTLE: Duration = Duration::from_secs(2);

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

/// One recording.
struct Row {
    /// CPU time while it recorded, start-up and report excluded.
    recording: Duration,
    usage: Usage,
    contents: Contents,
    /// From Ctrl-C to the end of the report.
    end: Duration,
}

/// Runs the command.
///
/// # Errors
/// When a build or a program fails. An engine that does not work here is a row of the table.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    println!(
        "\n{} s at {} Hz; CPU times of wcprof itself\n",
        options.seconds, options.rate
    );
    let mut rows = Vec::new();
    let mut peer_rows = Vec::new();
    for (n_threads, n_waking) in [(70, 3), (70, 10), (1000, 0)] {
        let target = Target::start(n_threads, n_waking)?;
        let name = format!("{} ({n_waking} run now and then)", target.n_threads);
        for engine in &options.engines {
            match record(&wcprof, &target, engine, options) {
                Ok(row) => rows.push(cells(&name, &row, options)),
                Err(error) => {
                    eprintln!("{engine}: {error:#}");
                    let mut row = vec![name.clone(), engine.clone(), "failed".to_owned()];
                    row.resize(HEAD.len(), String::new());
                    rows.push(row);
                }
            }
        }
        // Debuggers need minutes for a thousand threads.
        if n_threads <= 100 && n_waking == 10 && !options.no_peers {
            let folder = target_folder()?.join("bench");
            for peer in peers::measure(&target, options.seconds, &folder)? {
                peer_rows.push(vec![
                    name.clone(),
                    peer.name,
                    micros(peer.per_thread_sample),
                    peer.note.to_owned(),
                ]);
            }
        }
    }
    println!("{}", markdown(HEAD, &rows));
    println!(
        "A thread that only wakes {} times a second takes {:.1} us of CPU time each time.\n",
        options.rate,
        wake_up(options)?.as_secs_f64() * 1e6
    );
    if !peer_rows.is_empty() {
        let head = ["threads", "other profiler", "us/thread-sample", ""];
        println!("{}", markdown(&head, &peer_rows));
    }
    Ok(())
}

/// CPU time of sleeping and waking once: what a tick costs before anything is looked at, which
/// depends on the machine, a virtual one above all.
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

fn cells(name: &str, row: &Row, options: &Options) -> Vec<String> {
    let seconds = f64::from(options.seconds);
    let n_samples = row.contents.n_thread_samples.max(1) as f64;
    // Of the ticks that fell into the watched time.
    let watched = n_samples * seconds / row.contents.duration.as_secs_f64();
    for note in &row.contents.notes {
        eprintln!("{}: {note}", row.contents.engine);
    }
    vec![
        name.to_owned(),
        row.contents.engine.clone(),
        format!("{:.2}", row.recording.as_secs_f64() * 1e6 / watched),
        format!("{:.2}", row.usage.cpu.as_secs_f64() * 1e6 / n_samples),
        format!("{:.1}", row.recording.as_secs_f64() * 100.0 / seconds),
        format!("{:.2}", row.usage.trace_bytes as f64 / n_samples),
        format!("{:.0}", row.usage.rss_bytes as f64 / 1e6),
        format!("{}", row.end.as_millis()),
    ]
}

fn record(wcprof: &Path, target: &Target, engine: &str, options: &Options) -> Result<Row> {
    let mut attached = Attached::start(Recording {
        wcprof,
        pid: target.pid()?,
        engine,
        rate: options.rate,
    })?;
    attached.watch(SETTLE)?;
    let recording = attached.watch(Duration::from_secs(options.seconds.into()))?;
    let trace = attached.trace();
    let (usage, end) = attached.stop()?;
    Ok(Row {
        recording,
        usage,
        contents: contents(wcprof, &trace)?,
        end,
    })
}

fn micros(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e6)
}
