//! `cargo xtask lab provoke`: limits that are made on purpose on real daemons, and what wcprof says of them.
//!
//! A client with one messenger thread under large encrypted reads; a pool whose only placement group
//! compresses; a gateway in front of an OSD. Each is compared with a load that does not have the limit.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::ceph;
use super::conf::{self, Mode};
use super::fio::{self, Load};
use super::gateway;
use super::place::Lab;
use super::supervise::supervised;
use super::wcprof::{Wcprof, WcprofOptions, rules};
use crate::process::{Background, capture, silence};

/// How limits are provoked.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    wcprof: WcprofOptions,
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=60))]
    seconds: u32,
}

/// Provokes each limit; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a program fails, or wcprof says something else than it must.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    supervised(lab, options.wcprof.steps_only, || provoke(lab, options))
}

struct Recorder {
    wcprof: Wcprof,
    /// What was not as it must be.
    wrong: Vec<String>,
}

fn provoke(lab: &Lab, options: &Options) -> Result<()> {
    let mut recorder = Recorder {
        wcprof: Wcprof::new(&options.wcprof, "lab-provoke", options.seconds)?,
        wrong: Vec::new(),
    };
    let cluster = conf::Options {
        mode: Mode::Secure,
        tcmalloc: false,
        // More of them than messengers of the client: it is the limit, not they.
        osds: 3,
        // Two threads of a shard take turns: each would be half full.
        threads_per_shard: 1,
    };
    ceph::up(lab, &cluster)?;
    messenger(lab, &mut recorder)?;
    placement_group(lab, &mut recorder)?;
    gateway_and_osd(lab, &mut recorder)?;
    ensure!(
        recorder.wrong.is_empty(),
        "wcprof does not say what it must:\n{}",
        recorder.wrong.join("\n")
    );
    if options.wcprof.fixtures {
        for name in ["fio-one-messenger", "osd-one-pg"] {
            recorder.wcprof.keep(name, name)?;
        }
    }
    Ok(())
}

/// A client whose only messenger thread decrypts large reads.
fn messenger(lab: &Lab, recorder: &mut Recorder) -> Result<()> {
    for (name, block_size, depth, expected) in [
        ("fio-one-messenger", "1M", 16, true),
        ("fio-light-load", "4k", 1, false),
    ] {
        let options = fio::Options {
            depth,
            messengers: Some(1),
            ..fio::Options::sized("randread", block_size)
        };
        let load = Load::start(lab, &options, "--thread=1")?;
        std::thread::sleep(Duration::from_secs(3));
        let found = recorder.attach(name, &[load.pid()])?;
        load.stop()?;
        recorder.expect(name, &found, "msgr-saturated", expected);
    }
    Ok(())
}

/// A pool with one placement group, whose writes one thread of the OSD compresses, and one with many.
fn placement_group(lab: &Lab, recorder: &mut Recorder) -> Result<()> {
    let osds = lab.osds()?;
    for (name, n_groups, expected) in [("osd-one-pg", "1", true), ("osd-many-pgs", "32", false)] {
        for words in [
            format!("create {name} {n_groups} {n_groups}"),
            format!("set {name} compression_algorithm zlib"),
            format!("set {name} compression_mode force"),
        ] {
            capture(&mut lab.command(&format!("ceph osd pool {words}")))?;
        }
        let seconds = recorder.wcprof.seconds + 30;
        let words = format!("rados -p {name} bench {seconds} write -b 1048576 -t 8");
        let mut bench = Background::start(silence(&mut lab.command(&words)))?;
        std::thread::sleep(Duration::from_secs(3));
        let found = recorder.attach(name, &osds)?;
        ensure!(bench.is_running()?, "`rados bench` ended too early");
        drop(bench);
        recorder.expect(name, &found, "pool-imbalance", expected);
    }
    Ok(())
}

/// Small reads through a gateway: cores of gateways for each core of OSDs.
fn gateway_and_osd(lab: &Lab, recorder: &mut Recorder) -> Result<()> {
    const NAME: &str = "gateway-get";
    let gateway = gateway::up(lab)?;
    let load = gateway::Load::start(16, 4096)?;
    std::thread::sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), load.n_done());
    let pids: Vec<i32> = lab.osds()?.into_iter().chain([gateway.pid]).collect();
    recorder.attach(NAME, &pids)?;
    let per_second = (load.n_done() - before) as f64 / start.elapsed().as_secs_f64();
    load.stop()?;
    let n_ops = (per_second * f64::from(recorder.wcprof.seconds))
        .round()
        .to_string();
    let report = recorder.wcprof.json(NAME, &["hotspots", "--ops", &n_ops])?;
    let cores = &report["cores"];
    println!("{per_second:.0} GET/s of 4 KiB");
    for class in cores["classes"].as_array().into_iter().flatten() {
        println!(
            "{}: {:.2} cores, {:.0} us CPU/op",
            class["class"].as_str().unwrap_or_default(),
            class["cores"].as_f64().unwrap_or(0.0),
            class["us_per_op"].as_f64().unwrap_or(0.0)
        );
    }
    let ratio = cores["ratios"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|r| r["class"] == "radosgw" && r["to"] == "ceph-osd");
    let ratio = ratio.and_then(|r| r["ratio"].as_f64());
    println!("cores of radosgw for each of ceph-osd: {ratio:.2?}");
    if ratio.is_none_or(|ratio| ratio <= 1.0) {
        recorder.wrong.push(format!(
            "{NAME}: {ratio:?} cores of radosgw for each of ceph-osd"
        ));
    }
    Ok(())
}

impl Recorder {
    /// Records processes and gives the rules that found something.
    fn attach(&self, name: &str, pids: &[i32]) -> Result<Vec<String>> {
        self.wcprof.attach(name, pids, &[])?;
        Ok(rules(&self.wcprof.json(name, &["hotspots"])?))
    }

    fn expect(&mut self, name: &str, found: &[String], rule: &str, expected: bool) {
        println!("{name}: {}", found.join(", "));
        if found.iter().any(|f| f == rule) != expected {
            let not = if expected { "not " } else { "" };
            self.wrong.push(format!("{name}: {rule} is {not}found"));
        }
    }
}
