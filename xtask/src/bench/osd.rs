//! What an attached profiler costs a loaded OSD: segments with and without it, in turn.
//!
//! One fio runs all the time, so that connections and caches stay as they are. Operations are
//! counted by the OSD, CPU time by the kernel, latencies by fio. The segments of a round are
//! neighbors in time and their order rotates, so that a slow drift of the machine cancels out.
//! Start-up and report of a profiler fall between segments. `none` is a segment with nothing
//! attached that is compared with one like it: what the bench finds where there is nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::attached::{Attached, Contents, Recording, Usage, contents};
use super::histogram::Histograms;
use super::peers::RunningPeer;
use super::stats::{Ratio, median};
use super::table::markdown;
use crate::lab::fio::{self, Load, cpu_time};
use crate::lab::{Lab, ask};
use crate::process::{build_release, target_folder};

/// The ratio that wcprof is meant to keep.
const BOUND: f64 = 0.99;

/// fio logs latencies this often, milliseconds.
const LOG_INTERVAL: u64 = 100;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds: a segment without a profiler and one with each
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=500))]
    rounds: u32,
    /// Profilers, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "wcprof")]
    tools: Vec<Tool>,
    /// Length of a segment in seconds
    #[arg(long, default_value_t = 4.0, value_parser = seconds)]
    segment: f64,
    /// Time before each segment that is not counted, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    settle: f64,
    /// Ticks a second
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// auto, bpf, procfs or procfs-only
    #[arg(long, default_value = "auto")]
    engine: String,
    /// randread, randwrite, read, write or randrw
    #[arg(long, default_value = "randread")]
    rw: String,
    /// Operations in flight
    #[arg(long, default_value_t = 32)]
    depth: u32,
}

/// What is attached in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    /// Nothing.
    None,
    Wcprof,
    /// `perf record --call-graph dwarf` of the process.
    Perf,
    /// `perf record` of the process's context switches, with stacks.
    PerfSched,
}

/// One segment.
#[derive(Debug, Clone, Copy)]
struct Segment {
    iops: f64,
    cpu_us_per_op: f64,
    /// Milliseconds after the epoch.
    from: u64,
    to: u64,
}

/// What wcprof used while attached.
#[derive(Debug)]
struct Cost {
    /// CPU share within the segments.
    cpu_share: Vec<f64>,
    rss_bytes: u64,
    last: Option<(Usage, Contents)>,
    /// From Ctrl-C to the end of the report.
    end: Vec<f64>,
}

/// Runs the command.
///
/// # Errors
/// When there is no cluster, or a program fails.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let lab = Lab::new();
    let description = lab.require_cluster()?;
    let log = target_folder()?.join("bench/fio");
    fs::create_dir_all(log.with_file_name("")).context("failed to create the bench folder")?;
    let n_segments = options.rounds * (1 + options.tools.len() as u32);
    let seconds = f64::from(n_segments) * (options.segment + options.settle + 1.0);
    let mut load = Load::start(
        &lab,
        &fio::Options {
            // Reports take time, too; fio is stopped when the last segment is over.
            seconds: (seconds as u32).saturating_mul(2).clamp(60, 3600),
            rw: options.rw.clone(),
            block_size: "16k".to_owned(),
            depth: options.depth,
            tcmalloc: false,
            messengers: None,
        },
        &[
            format!("--write_hist_log={}", log.display()),
            format!("--log_hist_msec={LOG_INTERVAL}"),
            "--log_unix_epoch=1".to_owned(),
            "--per_job_logs=0".to_owned(),
        ],
    )?;
    eprintln!("about {:.0} minutes", seconds / 60.0);
    let mut rounds = Vec::new();
    let mut cost = Cost {
        cpu_share: Vec::new(),
        rss_bytes: 0,
        last: None,
        end: Vec::new(),
    };
    let mut order: Vec<Option<Tool>> = std::iter::once(None)
        .chain(options.tools.iter().copied().map(Some))
        .collect();
    // The first seconds of a connection are not like the rest.
    std::thread::sleep(Duration::from_secs(3));
    for number in 0..options.rounds {
        ensure!(load.is_running()?, "fio ended too early");
        let mut round = Vec::new();
        for tool in &order {
            let segment = match tool {
                None | Some(Tool::None) => without(&lab, options)?,
                Some(Tool::Wcprof) => with(&lab, options, &wcprof, &mut cost)?,
                Some(peer) => with_peer(&lab, options, *peer)?,
            };
            round.push((*tool, segment));
        }
        eprintln!("round {}: {}", number + 1, in_brief(&round));
        rounds.push(round);
        // Every order of two, and every place of more, comes equally often.
        order.rotate_left(1);
    }
    load.stop()?;
    let log = log.with_file_name("fio_clat_hist.log");
    let text =
        fs::read_to_string(&log).with_context(|| format!("failed to read `{}`", log.display()))?;
    print(
        options,
        &description,
        &rounds,
        &Histograms::parse(&text)?,
        &cost,
    );
    Ok(())
}

fn without(lab: &Lab, options: &Options) -> Result<Segment> {
    std::thread::sleep(Duration::from_secs_f64(options.settle));
    let measurement = Measurement::start(lab)?;
    std::thread::sleep(Duration::from_secs_f64(options.segment));
    measurement.end()
}

fn with(lab: &Lab, options: &Options, wcprof: &Path, cost: &mut Cost) -> Result<Segment> {
    let mut attached = Attached::start(Recording {
        wcprof,
        pid: lab.osd()?.pid,
        engine: &options.engine,
        rate: options.rate,
    })?;
    attached.watch(Duration::from_secs_f64(options.settle))?;
    let measurement = Measurement::start(lab)?;
    let cpu = attached.watch(Duration::from_secs_f64(options.segment))?;
    let segment = measurement.end()?;
    let trace = attached.trace();
    let (usage, end) = attached.stop()?;
    cost.cpu_share.push(cpu.as_secs_f64() / options.segment);
    cost.rss_bytes = cost.rss_bytes.max(usage.rss_bytes);
    cost.end.push(end.as_secs_f64());
    cost.last = Some((usage, contents(wcprof, &trace)?));
    Ok(segment)
}

fn with_peer(lab: &Lab, options: &Options, tool: Tool) -> Result<Segment> {
    let rate = options.rate.to_string();
    let arguments: &[&str] = match tool {
        Tool::PerfSched => &["-e", "sched:sched_switch", "-c", "1"],
        _ => &["-e", "cpu-clock", "-F", &rate],
    };
    let peer = RunningPeer::perf_record(lab.osd()?.pid, arguments)?;
    let segment = without(lab, options)?;
    peer.stop()?;
    Ok(segment)
}

/// IOPS of a round's segments.
fn in_brief(round: &[(Option<Tool>, Segment)]) -> String {
    let parts: Vec<String> = round
        .iter()
        .map(|(tool, segment)| format!("{:.0} with {}", segment.iops, name(*tool)))
        .collect();
    format!("IOPS {}", parts.join(", "))
}

fn name(tool: Option<Tool>) -> &'static str {
    match tool {
        None => "nothing",
        Some(Tool::None) => "nothing again",
        Some(Tool::Wcprof) => "wcprof",
        Some(Tool::Perf) => "perf record --call-graph dwarf",
        Some(Tool::PerfSched) => "perf record -e sched:sched_switch -g dwarf",
    }
}

/// A segment that has begun.
struct Measurement<'a> {
    lab: &'a Lab,
    pid: i32,
    n_ops: u64,
    cpu: Duration,
    start: Instant,
    from: u64,
}

impl<'a> Measurement<'a> {
    fn start(lab: &'a Lab) -> Result<Self> {
        let pid = lab.osd()?.pid;
        Ok(Self {
            lab,
            pid,
            n_ops: n_ops(lab)?,
            cpu: cpu_time(pid)?,
            start: Instant::now(),
            from: milliseconds()?,
        })
    }

    fn end(self) -> Result<Segment> {
        let seconds = self.start.elapsed().as_secs_f64();
        let to = milliseconds()?;
        let cpu = cpu_time(self.pid)?.saturating_sub(self.cpu);
        let n_ops = n_ops(self.lab)?.saturating_sub(self.n_ops);
        ensure!(n_ops > 0, "the OSD served no operation");
        Ok(Segment {
            iops: n_ops as f64 / seconds,
            cpu_us_per_op: cpu.as_secs_f64() * 1e6 / n_ops as f64,
            from: self.from,
            to,
        })
    }
}

/// Client operations that the OSD has served.
fn n_ops(lab: &Lab) -> Result<u64> {
    let answer = ask(
        &lab.socket("osd.0"),
        &json!({"prefix": "perf dump", "logger": "osd", "counter": "op"}),
    )?;
    answer["osd"]["op"]
        .as_u64()
        .with_context(|| format!("the OSD does not count operations: {answer}"))
}

fn milliseconds() -> Result<u64> {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")?;
    u64::try_from(time.as_millis()).context("the clock is far off")
}

fn print(
    options: &Options,
    description: &str,
    rounds: &[Vec<(Option<Tool>, Segment)>],
    latencies: &Histograms,
    cost: &Cost,
) {
    let p99 = |segment: &Segment| {
        latencies
            .percentile(0.99, segment.from + LOG_INTERVAL, segment.to)
            .map_or(0.0, |ns| ns / 1000.0)
    };
    println!(
        "\nOSD ({description}), fio {} 16k depth {}: {} rounds of {} s segments, {} Hz, engine {}\n",
        options.rw, options.depth, options.rounds, options.segment, options.rate, options.engine
    );
    let mut rows = Vec::new();
    let mut bounds = Vec::new();
    for tool in &options.tools {
        for (quantity, value) in [
            ("IOPS", &(|s: &Segment| s.iops) as &dyn Fn(&Segment) -> f64),
            ("OSD CPU us/op", &|s| s.cpu_us_per_op),
            ("p99 us", &p99),
        ] {
            let values = pairs(rounds, *tool, value);
            let (without, with): (Vec<f64>, Vec<f64>) = values.iter().copied().unzip();
            let ratio = Ratio::of(&values);
            if quantity == "IOPS" && *tool == Tool::Wcprof {
                bounds.extend(ratio.map(|ratio| ratio.against(BOUND)));
            }
            rows.push(vec![
                name(Some(*tool)).to_owned(),
                quantity.to_owned(),
                format!("{:.1}", median(&without)),
                format!("{:.1}", median(&with)),
                ratio.map_or_else(|| "not measured".to_owned(), |ratio| ratio.to_string()),
            ]);
        }
    }
    let head = [
        "attached",
        "median",
        "without",
        "with",
        "with / without, 95 % interval",
    ];
    println!("{}", markdown(&head, &rows));
    for bound in bounds {
        println!("IOPS with wcprof: {bound}");
    }
    if cost.cpu_share.is_empty() {
        return;
    }
    let share = median(&cost.cpu_share);
    print!(
        "wcprof: {:.1} % of a core, RSS {:.0} MB, {:.2} s from Ctrl-C to the end of the report",
        share * 100.0,
        cost.rss_bytes as f64 / 1e6,
        median(&cost.end)
    );
    match &cost.last {
        Some((usage, contents)) => println!(
            ", engine {}, {:.2} trace bytes/thread-sample",
            contents.engine,
            usage.trace_bytes as f64 / contents.n_thread_samples.max(1) as f64
        ),
        None => println!(),
    }
}

/// A quantity without and with a tool, a pair a round.
fn pairs(
    rounds: &[Vec<(Option<Tool>, Segment)>],
    tool: Tool,
    value: &dyn Fn(&Segment) -> f64,
) -> Vec<(f64, f64)> {
    let of = |round: &[(Option<Tool>, Segment)], wanted| {
        let segment = round.iter().find(|(tool, _)| *tool == wanted);
        segment.map(|(_, segment)| value(segment))
    };
    rounds
        .iter()
        .filter_map(|round| Some((of(round, None)?, of(round, Some(tool))?)))
        .collect()
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.5..=600.0).contains(&value) => Ok(value),
        _ => Err("not a number from 0.5 to 600".to_owned()),
    }
}
