//! `cargo xtask lab agent`: three OSDs and a virtual machine under the agent for minutes, one OSD started anew in between,
//! to whether the store has every interval of each, and what that took.

mod accounts;
mod day;
mod health;
mod store;
mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use self::health::AgentHealth;
use self::store::LoopbackStore;
use self::targets::{OSDS, osd_flags, osds};
use super::ceph;
use super::conf::{self, Mode};
use super::place::Lab;
use super::supervise::supervised;
use super::vm;
use crate::process::{
    Background, build_release, capture, command, free_address, log_tail, log_to, number, quoted,
    result_folder, text, wait_until,
};

/// Of the agent, which is its default.
const INTERVAL: u64 = 30;
const MAX_CPU_PERCENT: f64 = 1.0;
const MAX_MEMORY: f64 = 250e6;
/// Caches fill until then.
const SETTLED: u64 = 150;
/// What memory may grow by in the last quarter of the time, long after the restart, and how much less than in the middle one
/// an OSD's threads may be seen in an interval.
const MAX_GROWTH: f64 = 0.05;
const MAX_MISSING: f64 = 0.03;
/// Between the end of a window and the beginning of the next.
const MAX_GAP_NS: f64 = 1e6;
/// The OSD that is started anew.
const RESTARTED: u32 = 1;

/// How long it takes.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Minutes of recording
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(6..))]
    minutes: u64,
    /// Operations a second of the virtual machine's disk at most
    #[arg(long)]
    iops: Option<u32>,
    /// Instead a day of short intervals, with a store, a disk and processes that fail; of a cluster that runs, if one does
    #[arg(long, conflicts_with_all = ["minutes", "iops"])]
    day: bool,
    /// Milliseconds of an interval of that day
    #[arg(long, value_name = "MS", requires = "day", default_value_t = 500, value_parser = clap::value_parser!(u64).range(200..))]
    interval: u64,
    /// Intervals of that day: 24 hours are 8640 of 10 s
    #[arg(long, value_name = "N", requires = "day", default_value_t = 8640, value_parser = clap::value_parser!(u64).range(240..))]
    intervals: u64,
}

/// A profile that the store got.
struct Got {
    from: f64,
    to: f64,
    /// Threads at a time: its time by that of its window.
    threads: f64,
}

/// Makes a cluster and a machine, and checks the agent on them; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a program fails, or a figure is not what it must be.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    if options.day && lab.require_cluster().is_ok() && !lab.osds()?.is_empty() {
        return day::run(lab, options.interval, options.intervals);
    }
    supervised(lab, || {
        let wcprof = build_release()?;
        let folder = result_folder("lab-agent")?;
        let cluster = conf::Options {
            osds: OSDS,
            ..conf::Options::one_osd(Mode::Crc, false)
        };
        ceph::up(lab, &cluster)?;
        let machine = vm::Options {
            iops: options.iops,
            ..vm::Options::uncached(16384, 30)
        };
        vm::up(lab, &machine)?;
        if options.day {
            return day::run(lab, options.interval, options.intervals);
        }

        LoopbackStore::build()?;
        let got = folder.join("store.json");
        let store = LoopbackStore::start(&got, &store::StoreMode::default())?;
        let address = free_address()?;
        let state = folder.join("state");
        if state.exists() {
            fs::remove_dir_all(&state)?;
        }
        let log = folder.join("agent.log");
        let line = format!(
            "{wcprof} agent {} --vm lab --store {} --idle --listen {address} --state-dir {}",
            osd_flags(),
            store.url,
            quoted(&state)
        );
        let mut agent = command(&line);
        let mut agent = Background::start(log_to(&mut agent, &log)?)?;
        let watched = watch(lab, options, &mut agent, &address, &log);
        let (healths, found_after) = watched.with_context(|| log_tail(&log))?;
        let status = agent.interrupt(|| {})?;
        ensure!(status.success(), "the agent ended with {status}");
        store.end()?;
        let mut wrong = judge_health(&healths);
        if found_after > Duration::from_secs(INTERVAL) {
            wrong.push(format!("osd.{RESTARTED} was found after {found_after:?}"));
        }
        let got = store::read(&got)?;
        wrong.extend(judge_profiles(&got, options.minutes));
        let said = capture(command("ceph-osd --version"))?;
        wrong.extend(judge_labels(&got, &said));
        ensure!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), log_tail(&log));
        Ok(())
    })
}

/// Reads the agent's health in the middle of each interval, and starts an OSD anew halfway. Gives also how long it took
/// the agent to find that.
fn watch(
    lab: &Lab,
    options: &Options,
    agent: &mut Background,
    address: &str,
    log: &Path,
) -> Result<(Vec<AgentHealth>, Duration)> {
    let begin = Instant::now();
    let length = Duration::from_secs(60 * options.minutes);
    let mut healths: Vec<AgentHealth> = Vec::new();
    let mut found_after = None;
    println!("     at      CPU  names  memory  descriptors threads observations/s");
    loop {
        thread::sleep(to_middle());
        agent.require_running()?;
        let now = AgentHealth::read(address, agent.pid())?;
        if let Some(before) = healths.last() {
            let since = (now.at - begin).as_secs_f64();
            println!("{since:>5.0} s {}", now.line(before));
        }
        healths.push(now);
        let elapsed = begin.elapsed();
        if elapsed >= length {
            break;
        }
        if found_after.is_none() && elapsed >= length / 2 {
            found_after = Some(start_anew(lab, log)?);
        }
    }
    Ok((healths, found_after.context("no OSD was started anew")?))
}

/// The time to the middle of an interval, by the clock of the day.
fn to_middle() -> Duration {
    let interval = u128::from(INTERVAL) * 1000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = (now.unwrap_or_default().as_millis() + interval / 2) % interval;
    Duration::from_millis(u64::try_from(interval - at).unwrap_or_default())
}

fn start_anew(lab: &Lab, log: &Path) -> Result<Duration> {
    let name = format!("osd.{RESTARTED}");
    let osd = lab.daemons(&name)?.pop();
    osd.with_context(|| format!("{name} is gone"))?.stop(30)?;
    let conf = quoted(lab.file("ceph.conf"));
    let line = format!("ceph-osd -f -c {conf} -i {RESTARTED}");
    let osd = lab.start(&name, &line, false)?;
    let started = Instant::now();
    let said = format!("(pid {})", osd.pid);
    wait_until(&format!("the agent finds {name}"), 2 * INTERVAL, || {
        osd.require_running()?;
        Ok(fs::read_to_string(log)?.contains(&said))
    })?;
    let took = started.elapsed();
    println!(
        "{name} was found {:.1} s after its start",
        took.as_secs_f64()
    );
    Ok(took)
}

/// Whether CPU time and memory are within their limits, and nothing is lost.
fn judge_health(healths: &[AgentHealth]) -> Vec<String> {
    let begin = healths[0].at;
    let settled = healths
        .iter()
        .find(|health| (health.at - begin).as_secs() >= SETTLED);
    let (Some(settled), Some(last)) = (settled, healths.last()) else {
        return vec!["the agent was not watched for long enough".to_owned()];
    };
    let (cpu, names) = last.cpu_percent(settled);
    let of_memory = |health: &AgentHealth| health.value("resident_bytes");
    let before = &healths[healths.len() * 3 / 4];
    let growth = of_memory(last) / of_memory(before) - 1.0;
    let largest = healths.iter().map(of_memory).fold(0.0, f64::max);
    println!(
        "after {SETTLED} s: {cpu:.2} % of a core, {names:.2} % for names; memory {:.0} MB, {:+.0} % in the last quarter, at most {:.0} MB",
        of_memory(last) / 1e6,
        100.0 * growth,
        largest / 1e6
    );
    let none = [
        "joined_intervals_total",
        "lost_seconds_total",
        "dropped_batches_total",
        "push_refused_total",
        "spool_dropped_total",
    ];
    let counted = none.iter().filter(|name| last.value(name) != 0.0);
    let mut wrong: Vec<String> = counted
        .map(|name| format!("{name}: {} instead of 0", last.value(name)))
        .collect();
    let limits = [
        ("CPU time, percent of a core", cpu, MAX_CPU_PERCENT),
        ("growth of memory", growth, MAX_GROWTH),
        ("memory, bytes", largest, MAX_MEMORY),
    ];
    for (what, value, limit) in limits {
        // What is not a number is wrong, too.
        if value.is_nan() || value > limit {
            wrong.push(format!("{what}: {value:.3}, more than {limit}"));
        }
    }
    wrong
}

/// Whether there is a profile of each process for all of the time; prints what they hold.
fn judge_profiles(all_got: &[Value], minutes: u64) -> Vec<String> {
    let mut all: BTreeMap<String, Vec<Got>> = BTreeMap::new();
    let (mut n, mut bytes) = (0.0, 0.0);
    for got in all_got {
        n += 1.0;
        bytes += number(&got["bytes"]);
        let labels = &got["labels"];
        let name = [&labels["daemon"], &labels["vm"]].map(text).concat();
        let (from, to) = (number(&got["from"]), number(&got["to"]));
        all.entry(name).or_default().push(Got {
            from,
            to,
            threads: number(&got["time"]) / (to - from),
        });
    }
    println!("{n} profiles, {:.0} bytes each", bytes / n);
    let mut wrong = Vec::new();
    for name in osds().chain(["lab".to_owned()]) {
        match all.get_mut(&name) {
            Some(profiles) => wrong.extend(judge_windows(&name, profiles, minutes)),
            None => wrong.push(format!("{name}: no profile")),
        }
    }
    wrong
}

/// Whether the windows of a process follow each other over all of the time, and each holds the time of its threads.
fn judge_windows(name: &str, profiles: &mut [Got], minutes: u64) -> Vec<String> {
    profiles.sort_by(|a, b| a.from.total_cmp(&b.from));
    let mut wrong = Vec::new();
    let mut end = profiles[0].from;
    for got in &*profiles {
        if got.from - end > MAX_GAP_NS {
            wrong.push(format!(
                "{name}: {:.3} s without profile",
                (got.from - end) / 1e9
            ));
        }
        end = end.max(got.to);
    }
    let covered = (end - profiles[0].from) / 60e9;
    let expected = minutes as f64 - INTERVAL as f64 / 60.0;
    if covered < expected {
        wrong.push(format!("{name}: profiles of {covered:.2} min alone"));
    }
    let mut threads: Vec<f64> = profiles.iter().map(|got| got.threads).collect();
    threads.sort_by(f64::total_cmp);
    let (least, middle) = (threads[0], threads[threads.len() / 2]);
    println!(
        "{name}: {} profiles of {covered:.1} min, {least:.2} to {:.2} threads on average",
        threads.len(),
        threads[threads.len() - 1]
    );
    // QEMU starts and ends threads; an OSD that starts has fewer.
    let is_steady = name.starts_with("osd.") && name != format!("osd.{RESTARTED}");
    if is_steady && least < middle * (1.0 - MAX_MISSING) {
        wrong.push(format!("{name}: {least:.2} threads seen of {middle:.2}"));
    }
    wrong
}

/// The version of each OSD, of which Ceph says `ceph version 16.2.15 (...)`.
fn judge_labels(all_got: &[Value], said: &str) -> BTreeSet<String> {
    let version = said.split(' ').nth(2).unwrap_or_default();
    let mut wrong = BTreeSet::new();
    for got in all_got {
        let labels = &got["labels"];
        let daemon = text(&labels["daemon"]);
        if osds().any(|osd| osd == daemon) && labels["version"] != version {
            wrong.insert(format!(
                "{daemon}: version {} instead of {version}",
                labels["version"]
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Profiles of all processes for six minutes, but for the window of one that `leave_out` names.
    fn lines(leave_out: Option<(&str, u64)>) -> String {
        let mut lines = "{\"url\": \"x\"}\n".to_owned();
        for (name, label) in [
            ("osd.0", "daemon"),
            ("osd.1", "daemon"),
            ("osd.2", "daemon"),
            ("lab", "vm"),
        ] {
            for window in (0..12).filter(|window| leave_out != Some((name, *window))) {
                let from = window * 30_000_000_000_u64;
                let got = serde_json::json!({
                    "labels": {"__name__": "process_cpu", label: name},
                    "from": from, "to": from + 30_000_000_000, "time": 60 * 30_000_000_000_u64, "bytes": 1,
                });
                lines += &format!("{got}\n");
            }
        }
        lines
    }

    /// Check that whole profiles are right, and that one that is missing, and time that is missing, are not.
    #[test]
    fn accounts() {
        let judge = |lines: &str| judge_profiles(&store::parse(lines).unwrap(), 6);
        assert_eq!(judge(&lines(None)), [""; 0]);
        let wrong = judge(&lines(Some(("osd.1", 5))));
        assert_eq!(wrong, ["osd.1: 30.000 s without profile"]);
        let wrong = judge(&lines(Some(("lab", 11))));
        assert_eq!(wrong, [""; 0], "the last one may be under way");
        let less = lines(None).replacen("1800000000000", "1700000000000", 1);
        let wrong = judge(&less);
        assert_eq!(wrong, ["osd.0: 56.67 threads seen of 60.00"]);
        assert_eq!(judge("{}\n").len(), 4);
    }

    /// Check that an OSD's label is compared with what Ceph says, and that a process that others started is not.
    #[test]
    fn versions() {
        let said = "ceph version 16.2.15 (618f) pacific (stable)";
        let line = |daemon: &str, version: &str| {
            let labels = serde_json::json!({"daemon": daemon, "version": version});
            format!("{}\n", serde_json::json!({ "labels": labels }))
        };
        let right = ["{}\n", &line("osd.0", "16.2.15"), &line("osd.98", "")].concat();
        let judge = |lines: &str| judge_labels(&store::parse(lines).unwrap(), said);
        assert!(judge(&right).is_empty());
        let wrong = judge(&(right + &line("osd.1", "17.2.6")));
        assert_eq!(
            Vec::from_iter(wrong),
            ["osd.1: version \"17.2.6\" instead of 16.2.15"]
        );
    }
}
