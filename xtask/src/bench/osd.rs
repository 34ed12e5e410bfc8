//! What an attached wcprof costs a loaded OSD: segments with and without it, in turn.
//!
//! One fio runs all the time, so that connections and caches stay as they are. Operations are
//! counted by the OSD, CPU time by the kernel, latencies by fio. The two segments of a pair are
//! neighbors in time and their order alternates, so that a slow drift of the machine cancels out.
//! wcprof's start-up and report fall between segments.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::attached::{Attached, Contents, Recording, Usage, contents};
use super::histogram::Histograms;
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
    /// Pairs of segments
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=500))]
    pairs: u32,
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
    let pairs_seconds = f64::from(options.pairs) * 2.0 * (options.segment + options.settle + 1.0);
    let mut load = Load::start(
        &lab,
        &fio::Options {
            // Reports take time, too; fio is stopped when the last segment is over.
            seconds: (pairs_seconds as u32).saturating_mul(2).clamp(60, 3600),
            rw: options.rw.clone(),
            block_size: "16k".to_owned(),
            depth: options.depth,
            tcmalloc: false,
        },
        &[
            format!("--write_hist_log={}", log.display()),
            format!("--log_hist_msec={LOG_INTERVAL}"),
            "--log_unix_epoch=1".to_owned(),
            "--per_job_logs=0".to_owned(),
        ],
    )?;
    eprintln!("about {:.0} minutes", pairs_seconds / 60.0);
    let mut pairs = Vec::new();
    let mut cost = Cost {
        cpu_share: Vec::new(),
        rss_bytes: 0,
        last: None,
        end: Vec::new(),
    };
    // The first seconds of a connection are not like the rest.
    std::thread::sleep(Duration::from_secs(3));
    for number in 0..options.pairs {
        ensure!(load.is_running()?, "fio ended too early");
        let pair = if number % 2 == 0 {
            let without = without(&lab, options)?;
            (without, with(&lab, options, &wcprof, &mut cost)?)
        } else {
            let with = with(&lab, options, &wcprof, &mut cost)?;
            (without(&lab, options)?, with)
        };
        eprintln!(
            "pair {}: {:.0} IOPS without, {:.0} with",
            number + 1,
            pair.0.iops,
            pair.1.iops
        );
        pairs.push(pair);
    }
    load.stop()?;
    let log = log.with_file_name("fio_clat_hist.log");
    let text =
        fs::read_to_string(&log).with_context(|| format!("failed to read `{}`", log.display()))?;
    print(
        options,
        &description,
        &pairs,
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
    pairs: &[(Segment, Segment)],
    latencies: &Histograms,
    cost: &Cost,
) {
    let p99 = |segment: &Segment| {
        latencies
            .percentile(0.99, segment.from + LOG_INTERVAL, segment.to)
            .map_or(0.0, |ns| ns / 1000.0)
    };
    let mut rows = Vec::new();
    let mut iops = None;
    for (name, value) in [
        ("IOPS", &(|s: &Segment| s.iops) as &dyn Fn(&Segment) -> f64),
        ("OSD CPU us/op", &|s| s.cpu_us_per_op),
        ("p99 us", &p99),
    ] {
        let values: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (value(a), value(b))).collect();
        let (without, with): (Vec<f64>, Vec<f64>) = values.iter().copied().unzip();
        let ratio = Ratio::of(&values);
        if name == "IOPS" {
            iops = ratio;
        }
        rows.push(vec![
            name.to_owned(),
            format!("{:.1}", median(&without)),
            format!("{:.1}", median(&with)),
            ratio.map_or_else(|| "not measured".to_owned(), |ratio| ratio.to_string()),
        ]);
    }
    println!(
        "\nOSD ({description}), fio {} 16k depth {}: {} pairs of {} s segments, wcprof {} at {} Hz\n",
        options.rw, options.depth, options.pairs, options.segment, options.engine, options.rate
    );
    let head = ["median", "without", "with", "with / without, 95 % interval"];
    println!("{}", markdown(&head, &rows));
    if let Some(ratio) = iops {
        println!("IOPS: {}", ratio.against(BOUND));
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

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.5..=600.0).contains(&value) => Ok(value),
        _ => Err("not a number from 0.5 to 600".to_owned()),
    }
}
