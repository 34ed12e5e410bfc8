//! What an attached wcprof costs a loaded OSD: alternating segments with and without it.
//!
//! One fio runs all the time, so that connections and caches stay as they are. Operations are
//! counted by the OSD, CPU time by the kernel, latencies by fio. The segments of a round are
//! neighbors in time and their order alternates, so that a slow drift of the machine cancels out.
//! Start-up and report of wcprof fall between segments.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::json;

use super::attached::{Attached, Contents, Recording, Usage};
use super::histogram::Histograms;
use super::stats::{Ratio, median};
use crate::cpu_time::cpu_time;
use crate::lab::admin::ask;
use crate::lab::fio::{self, Load};
use crate::lab::place::Lab;
use crate::markdown::table;
use crate::process::{build_release, result_folder};

/// The ratio of IOPS that wcprof is meant to keep.
const BOUND: f64 = 0.99;

/// Ticks a second.
const RATE: u32 = 100;

/// fio logs latencies this often, milliseconds.
const LOG_INTERVAL: u64 = 100;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds, each a segment without wcprof and one with it
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=500))]
    rounds: u32,
    /// Attach nothing in either segment: shows the noise of the method
    #[arg(long)]
    nothing: bool,
    /// Length of a segment in seconds
    #[arg(long, default_value_t = 4.0, value_parser = parse_seconds)]
    segment: f64,
    /// Time before each segment that is not counted, in seconds
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds)]
    settle: f64,
    /// auto, bpf, procfs or procfs-only
    #[arg(long, default_value = "auto")]
    engine: String,
}

/// What one segment showed.
#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    iops: f64,
    cpu_us_per_op: f64,
    /// Its begin and end, milliseconds after the epoch.
    from: u64,
    to: u64,
}

/// What wcprof used in one segment.
#[derive(Debug)]
struct Cost {
    /// CPU time within the segment, as a share of one core.
    cpu_share: f64,
    usage: Usage,
    contents: Contents,
}

/// All segments.
#[derive(Debug, Default)]
struct Measured {
    /// For each round a segment without wcprof, and one with it.
    rounds: Vec<(Segment, Segment)>,
    costs: Vec<Cost>,
}

/// Runs the command.
///
/// # Errors
/// When there is no cluster, or a program fails.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let lab = Lab::new();
    let description = lab.require_cluster()?;
    let log = result_folder("bench")?.join("fio");
    let n_segments = f64::from(2 * options.rounds);
    let seconds = n_segments * (options.segment + options.settle + 1.0);
    let mut load = Load::start(
        &lab,
        &fio::Options {
            // Reports take time, too; fio is stopped when the last segment is over.
            seconds: (seconds as u32).saturating_mul(2).clamp(60, 3600),
            depth: 32,
            ..fio::Options::sized("randread", "16k")
        },
        &format!(
            "--write_hist_log={} --log_hist_msec={LOG_INTERVAL} --log_unix_epoch=1 --per_job_logs=0",
            log.display()
        ),
    )?;
    eprintln!("about {:.0} minutes", seconds / 60.0);
    // The first seconds of a connection are not like the rest.
    std::thread::sleep(Duration::from_secs(3));
    let measured = measure(&lab, options, &wcprof, &mut load)?;
    load.stop()?;
    let text = fs::read_to_string(log.with_file_name("fio_clat_hist.log"))?;
    println!(
        "\nOSD ({description}), fio randread 16k depth 32: {} rounds of {} s segments, {RATE} Hz, engine {}\n",
        options.rounds, options.segment, options.engine
    );
    print_ratios(&measured.rounds, &Histograms::parse(&text)?);
    print_cost(&measured.costs);
    Ok(())
}

fn measure(lab: &Lab, options: &Options, wcprof: &Path, load: &mut Load) -> Result<Measured> {
    let mut measured = Measured::default();
    for number in 1..=options.rounds {
        ensure!(load.is_running()?, "fio ended too early");
        let mut attach = || match options.nothing {
            true => without(lab, options),
            false => {
                let (segment, cost) = with(lab, options, wcprof)?;
                measured.costs.push(cost);
                Ok(segment)
            }
        };
        // Each order comes equally often.
        let (before, after) = match number % 2 {
            0 => {
                let after = attach()?;
                (without(lab, options)?, after)
            }
            _ => (without(lab, options)?, attach()?),
        };
        let (without, with) = (before.iops, after.iops);
        eprintln!("round {number}: IOPS {without:.0} without, {with:.0} with");
        measured.rounds.push((before, after));
    }
    Ok(measured)
}

fn without(lab: &Lab, options: &Options) -> Result<Segment> {
    std::thread::sleep(Duration::from_secs_f64(options.settle));
    let measurement = Measurement::start(lab)?;
    std::thread::sleep(Duration::from_secs_f64(options.segment));
    measurement.end()
}

fn with(lab: &Lab, options: &Options, wcprof: &Path) -> Result<(Segment, Cost)> {
    let mut attached = Attached::start(Recording {
        wcprof,
        pid: lab.osd()?.pid,
        engine: &options.engine,
        rate: RATE,
    })?;
    attached.run_for(Duration::from_secs_f64(options.settle))?;
    let measurement = Measurement::start(lab)?;
    let cpu = attached.run_for(Duration::from_secs_f64(options.segment))?;
    let segment = measurement.end()?;
    let (usage, contents) = attached.stop(wcprof)?;
    let cost = Cost {
        cpu_share: cpu.as_secs_f64() / options.segment,
        usage,
        contents,
    };
    Ok((segment, cost))
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
    let question = json!({"prefix": "perf dump", "logger": "osd", "counter": "op"});
    let answer = ask(&lab.socket("osd.0"), &question)?;
    answer["osd"]["op"]
        .as_u64()
        .with_context(|| format!("the OSD does not count operations: {answer}"))
}

/// Now, in milliseconds after the epoch.
fn milliseconds() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64)
}

fn print_ratios(rounds: &[(Segment, Segment)], latencies: &Histograms) {
    let p99 = |segment: &Segment| {
        let ns = latencies.percentile(0.99, segment.from + LOG_INTERVAL, segment.to);
        ns.unwrap_or(0.0) / 1000.0
    };
    let mut rows = Vec::new();
    let mut verdict = None;
    for (quantity, value) in [
        ("IOPS", &(|s: &Segment| s.iops) as &dyn Fn(&Segment) -> f64),
        ("OSD CPU us/op", &|s| s.cpu_us_per_op),
        ("p99 us", &p99),
    ] {
        let pairs = rounds.iter().map(|(a, b)| (value(a), value(b)));
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let ratio = Ratio::new(&pairs);
        if quantity == "IOPS" {
            verdict = ratio.map(|ratio| ratio.against(BOUND));
        }
        rows.push(vec![
            quantity.to_owned(),
            format!("{:.1}", median(pairs.iter().map(|pair| pair.0))),
            format!("{:.1}", median(pairs.iter().map(|pair| pair.1))),
            ratio.map_or_else(|| "not measured".to_owned(), |ratio| ratio.to_string()),
        ]);
    }
    let interval = "with / without, 95 % interval";
    let head = ["median", "without", "with", interval];
    println!("{}", table(&head, &rows));
    println!("IOPS with wcprof: {}", verdict.unwrap_or_default());
}

fn print_cost(costs: &[Cost]) {
    let Some(last) = costs.last() else { return };
    let rss = costs.iter().map(|cost| cost.usage.rss_bytes).max();
    println!(
        "wcprof: {:.1} % of a core, RSS {:.0} MB, {:.2} s from Ctrl-C to the end of the report, engine {}, \
         {:.2} trace bytes/thread-sample",
        median(costs.iter().map(|cost| cost.cpu_share)) * 100.0,
        rss.unwrap_or(0) as f64 / 1e6,
        median(costs.iter().map(|cost| cost.usage.end.as_secs_f64())),
        last.contents.engine,
        last.usage.trace_bytes as f64 / last.contents.n_thread_samples.max(1) as f64
    );
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.5..=600.0).contains(&value) => Ok(value),
        _ => Err("not a number from 0.5 to 600".to_owned()),
    }
}
