//! What an attached wcprof costs a loaded OSD: alternating segments with and without it.
//!
//! One fio runs all the time, so that connections and caches stay as they are. Operations are
//! counted by the OSD, CPU time by the kernel, latencies by fio. The segments of a round are
//! neighbors in time and their order alternates, so that a slow drift of the machine cancels out.
//! Start-up and report of wcprof fall between segments. A virtual machine loses CPUs to others: rounds of
//! which one segment lost more than the other are left out, and the result is given with and without them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::attached::{Attached, Recording};
use super::histogram::Histograms;
use super::stats::{Ratio, median};
use crate::cpu_time::cpu_time;
use crate::lab::admin::counter;
use crate::lab::fio::{self, Load};
use crate::lab::place::Lab;
use crate::markdown::table;
use crate::process::{build_release, quoted, result_folder};

/// Ticks a second.
const RATE: u32 = 100;

/// fio logs latencies this often, milliseconds.
const LOG_INTERVAL: u64 = 100;

/// Rounds with alike steal before an interval can be narrow enough: few can agree by luck.
const MIN_ROUNDS: usize = 20;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Rounds at most, each a segment without wcprof and one with it
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(6..=2000))]
    rounds: u32,
    /// End as soon as half of the interval is at most this, for IOPS and for CPU time of an operation, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    until: Option<f64>,
    /// Leave out rounds whose segments differ by more than this in the CPU time that the hypervisor took, in percent
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    steal: f64,
    /// Attach nothing in either segment: shows the noise of the method
    #[arg(long)]
    nothing: bool,
    /// Length of a segment in seconds
    #[arg(long, default_value_t = 4.0)]
    segment: f64,
    /// Time before each segment that is not counted, in seconds
    #[arg(long, default_value_t = 2.0)]
    settle: f64,
}

/// What one segment showed.
#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    iops: f64,
    cpu_us_per_op: f64,
    /// CPU time that the hypervisor took, as a share of all.
    steal: f64,
    /// Its begin and end, milliseconds after the epoch.
    from: u64,
    to: u64,
    /// CPU time of wcprof as a share of one core.
    wcprof_cores: f64,
}

/// A segment without wcprof, and one with it.
type Round = [Segment; 2];

/// `1` or `1%` to 0.01.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>();
    let valid = number.ok().filter(|p| (0.0..=100.0).contains(p));
    valid.map(|p| p / 100.0).ok_or("not a percentage".into())
}

/// Runs the command.
///
/// # Errors
/// When there is no cluster, or a program fails.
pub fn run(options: &Options) -> Result<()> {
    let wcprof = build_release()?;
    let lab = Lab::new()?;
    let description = lab.require_cluster()?;
    let log = result_folder("bench")?.join("fio");
    let n_segments = f64::from(2 * options.rounds);
    let seconds = n_segments * (options.segment + options.settle + 1.0);
    let fio = fio::Options {
        // Reports take time, too; fio is stopped when the last segment is over.
        seconds: (seconds as u32).saturating_mul(2).clamp(60, 4 * 3600),
        depth: 32,
        ..fio::Options::sized("randread", "16k")
    };
    let flags = format!(
        "--write_hist_log={} --log_hist_msec={LOG_INTERVAL} --log_unix_epoch=1 --per_job_logs=0",
        quoted(&log)
    );
    let mut load = Load::start(&lab, &fio, &flags)?;
    eprintln!("about {:.0} minutes", seconds / 60.0);
    // The first seconds of a connection are not like the rest.
    std::thread::sleep(Duration::from_secs(3));
    let (mut rounds, mut recordings) = (Vec::new(), Vec::new());
    for number in 1..=options.rounds {
        load.process.require_running()?;
        let mut round = [Segment::default(); 2];
        // Each order comes equally often.
        for is_with in [number % 2 == 0, number % 2 == 1] {
            let start = || Attached::start(&wcprof, lab.osd()?.pid, "auto", RATE);
            let mut attached = (is_with && !options.nothing).then(start).transpose()?;
            round[usize::from(is_with)] = segment(&lab, options, attached.as_mut())?;
            if let Some(attached) = attached {
                recordings.push(attached.stop(&wcprof)?);
            }
        }
        rounds.push(round);
        let ratios = [iops, cpu_us_per_op].map(|value| ratio(&alike(&rounds, options), value));
        let [without, with] = round;
        eprintln!(
            "round {number}: IOPS {:.0} without, {:.0} with; steal {:.1} %, {:.1} %; so far {}",
            without.iops,
            with.iops,
            without.steal * 100.0,
            with.steal * 100.0,
            ratios.map(text_of).join(", ")
        );
        let is_narrow =
            |ratio: &Option<Ratio>, until| ratio.is_some_and(|r| r.half_width() <= until);
        if let Some(until) = options.until
            && alike(&rounds, options).len() >= MIN_ROUNDS
            && ratios.iter().all(|ratio| is_narrow(ratio, until))
        {
            break;
        }
    }
    load.stop()?;
    let text = fs::read_to_string(log.with_file_name("fio_clat_hist.log"))?;
    println!(
        "\nOSD ({description}), fio randread 16k depth 32: {} rounds of {} s segments, {RATE} Hz; steal of {} alike\n",
        rounds.len(),
        options.segment,
        alike(&rounds, options).len()
    );
    print_ratios(&rounds, options, &Histograms::parse(&text)?);
    print_cost(&rounds, &recordings);
    Ok(())
}

/// Waits, then measures, while wcprof records if it is given.
fn segment(lab: &Lab, options: &Options, mut wcprof: Option<&mut Attached>) -> Result<Segment> {
    let pid = lab.osd()?.pid;
    let mut wait = |seconds| {
        let time = Duration::from_secs_f64(seconds);
        match &mut wcprof {
            Some(wcprof) => wcprof.run_for(time),
            None => {
                std::thread::sleep(time);
                Ok(Duration::ZERO)
            }
        }
    };
    let socket = lab.file("osd.0.asok");
    let counters = || -> Result<_> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok((
            now.as_millis() as u64,
            counter(&socket, "osd", "op")?,
            cpu_time(pid)?,
            machine_times()?,
        ))
    };
    wait(options.settle)?;
    let (from, n_before, cpu_before, machine_before) = counters()?;
    let wcprof_cpu = wait(options.segment)?;
    let (to, n_after, cpu_after, machine_after) = counters()?;
    let n = n_after.saturating_sub(n_before) as f64;
    ensure!(n > 0.0, "the OSD served no operation");
    let [steal, all] = [0, 1].map(|i| machine_after[i].saturating_sub(machine_before[i]) as f64);
    Ok(Segment {
        iops: n * 1000.0 / (to - from) as f64,
        cpu_us_per_op: cpu_after.saturating_sub(cpu_before).as_secs_f64() * 1e6 / n,
        steal: steal / all.max(1.0),
        from,
        to,
        wcprof_cores: wcprof_cpu.as_secs_f64() / options.segment,
    })
}

/// What the hypervisor took of the machine's CPU time so far, and all of it, in the kernel's units.
fn machine_times() -> Result<[u64; 2]> {
    let stat = fs::read_to_string("/proc/stat")?;
    let fields = stat
        .split_whitespace()
        .skip(1)
        .map_while(|f| f.parse().ok());
    // user, nice, system, idle, iowait, irq, softirq, steal; time of guests is in `user` already.
    let fields: Vec<u64> = fields.take(8).collect();
    let steal = fields.get(7).context("`/proc/stat` has no steal")?;
    Ok([*steal, fields.iter().sum()])
}

/// The rounds of which both segments lost about as much to the hypervisor.
fn alike(rounds: &[Round], options: &Options) -> Vec<Round> {
    let is_alike = |[a, b]: &&Round| (a.steal - b.steal).abs() <= options.steal;
    rounds.iter().filter(is_alike).copied().collect()
}

fn iops(segment: &Segment) -> f64 {
    segment.iops
}

fn cpu_us_per_op(segment: &Segment) -> f64 {
    segment.cpu_us_per_op
}

fn ratio(rounds: &[Round], value: impl Fn(&Segment) -> f64) -> Option<Ratio> {
    let pairs: Vec<_> = rounds.iter().map(|[a, b]| (value(a), value(b))).collect();
    Ratio::new(&pairs)
}

fn text_of(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "not measured".to_owned(), |ratio| ratio.to_string())
}

fn print_ratios(rounds: &[Round], options: &Options, latencies: &Histograms) {
    let p99 = |segment: &Segment| {
        let ns = latencies.percentile(0.99, segment.from + LOG_INTERVAL, segment.to);
        ns.unwrap_or(0.0) / 1000.0
    };
    let alike = alike(rounds, options);
    let mut rows = Vec::new();
    for (quantity, value) in [
        ("p99 us", &p99 as &dyn Fn(&Segment) -> f64),
        ("OSD CPU us/op", &cpu_us_per_op),
        ("IOPS", &iops),
    ] {
        let middle = |i: usize| median(alike.iter().map(|round| value(&round[i])));
        rows.push(vec![
            quantity.to_owned(),
            format!("{:.1}", middle(0)),
            format!("{:.1}", middle(1)),
            text_of(ratio(&alike, value)),
            text_of(ratio(rounds, value)),
        ]);
    }
    let head = [
        "median",
        "without",
        "with",
        "with / without, 95 % interval",
        "all rounds",
    ];
    println!("{}", table(&head, &rows));
}

fn print_cost(rounds: &[Round], recordings: &[Recording]) {
    let Some(last) = recordings.last() else {
        return;
    };
    let rss = recordings.iter().map(|recording| recording.rss_bytes).max();
    println!(
        "wcprof: {:.1} % of a core, RSS {:.0} MB, {:.2} s from Ctrl-C to the end of the report, engine {}, \
         {:.2} trace bytes/thread-sample",
        median(rounds.iter().map(|[_, with]| with.wcprof_cores)) * 100.0,
        rss.unwrap_or(0) as f64 / 1e6,
        median(
            recordings
                .iter()
                .map(|recording| recording.end.as_secs_f64())
        ),
        last.engine,
        last.trace_bytes as f64 / last.n_thread_samples.max(1.0)
    );
}
