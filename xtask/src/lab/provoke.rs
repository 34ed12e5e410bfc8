//! `cargo xtask lab provoke`: limits that are made on purpose on real daemons, and what wcprof says of them.
//!
//! A client with one messenger thread under large encrypted reads; a pool whose only placement group
//! compresses; a gateway in front of an OSD. Each is compared with a load that does not have the limit.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::admin::counter;
use super::ceph;
use super::conf::{self, Mode};
use super::fio::{self, Load};
use super::gateway;
use super::place::Lab;
use super::supervise::supervised;
use super::wcprof::{Wcprof, rules};
use crate::process::{Background, list, log_to, number, text};

/// How limits are provoked.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Also keep the traces, without names of this host, as fixtures
    #[arg(long)]
    fixtures: bool,
    /// Length of each recording in seconds
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(4..=60))]
    seconds: u32,
}

/// Provokes each limit; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a program fails, or wcprof does not find a limit.
pub fn run(lab: &Lab, options: &Options) -> Result<()> {
    supervised(lab, || provoke(lab, options))
}

/// Daemons of a lab, recorded by wcprof.
struct Recorder<'a> {
    lab: &'a Lab,
    wcprof: Wcprof,
    /// Limits that were not found, or found where there are none.
    wrong: Vec<String>,
}

fn provoke(lab: &Lab, options: &Options) -> Result<()> {
    let mut recorder = Recorder {
        lab,
        wcprof: Wcprof::new("lab-provoke", options.seconds, 99)?,
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
    recorder.messenger("fio-one-messenger", "1M", 16, true)?;
    recorder.messenger("fio-light-load", "4k", 1, false)?;
    recorder.placement_groups("osd-one-pg", 1, true)?;
    recorder.placement_groups("osd-many-pgs", 32, false)?;
    recorder.gateway_and_osd()?;
    let wrong = recorder.wrong.join("\n");
    ensure!(wrong.is_empty(), "wcprof is wrong:\n{wrong}");
    if options.fixtures {
        for name in ["fio-one-messenger", "osd-one-pg"] {
            recorder.wcprof.copy_to_fixtures(name, name)?;
        }
    }
    Ok(())
}

impl Recorder<'_> {
    /// A client whose only messenger thread decrypts reads.
    fn messenger(&mut self, name: &str, block_size: &str, depth: u32, limit: bool) -> Result<()> {
        let options = fio::Options {
            depth,
            messengers: 1,
            ..fio::Options::sized("randread", block_size)
        };
        let load = Load::start(self.lab, &options, "--thread=1")?;
        std::thread::sleep(Duration::from_secs(3));
        self.check(name, &[load.process.pid()], "msgr-saturated", limit)?;
        load.stop()
    }

    /// A pool whose writes the OSD compresses, one thread for each placement group.
    fn placement_groups(&mut self, name: &str, n: u32, limit: bool) -> Result<()> {
        for words in [
            format!("create {name} {n} {n}"),
            format!("set {name} compression_algorithm zlib"),
            format!("set {name} compression_mode force"),
        ] {
            self.lab.run(&format!("ceph osd pool {words}"))?;
        }
        let seconds = self.wcprof.seconds + 30;
        let line = format!("rados -p {name} bench {seconds} write -b 1048576 -t 8");
        let mut bench = self.lab.command(&line);
        let mut bench = Background::start(log_to(&mut bench, "/dev/null".as_ref())?)?;
        std::thread::sleep(Duration::from_secs(3));
        self.check(name, &self.lab.osds()?, "pool-imbalance", limit)?;
        bench.require_running()
    }

    /// Small reads through a gateway: cores of gateways for each core of OSDs.
    fn gateway_and_osd(&mut self) -> Result<()> {
        const NAME: &str = "gateway-get";
        let gateway = gateway::up(self.lab)?;
        let load = gateway::read_object(self.lab, 16)?;
        std::thread::sleep(Duration::from_secs(2));
        let socket = self.lab.file("rgw.a.asok");
        let n_done = || counter(&socket, "rgw", "get");
        let (start, before) = (Instant::now(), n_done()?);
        let pids: Vec<i32> = self.lab.osds()?.into_iter().chain([gateway.pid]).collect();
        self.wcprof.attach(NAME, &pids, "")?;
        let per_second = (n_done()? - before) as f64 / start.elapsed().as_secs_f64();
        drop(load);
        let n_ops = (per_second * f64::from(self.wcprof.seconds)).round();
        let report = self.wcprof.json(NAME, &format!("report --ops {n_ops}"))?;
        let cores = &report["cores"];
        println!("{per_second:.0} GET/s of 4 KiB");
        for class in list(&cores["classes"]) {
            println!(
                "{}: {:.2} cores, {:.0} us CPU/op",
                text(&class["class"]),
                number(&class["cores"]),
                number(&class["us_per_op"])
            );
        }
        let ratio = list(&cores["ratios"])
            .find(|ratio| ratio["class"] == "radosgw" && ratio["to"] == "ceph-osd")
            .map_or(0.0, |ratio| number(&ratio["ratio"]));
        let ratio_text = format!("{NAME}: {ratio:.2} cores of radosgw for each of ceph-osd");
        println!("{ratio_text}");
        if ratio <= 1.0 {
            self.wrong.push(ratio_text);
        }
        Ok(())
    }

    /// Records processes, and notes whether a rule finds something as expected.
    fn check(&mut self, name: &str, pids: &[i32], rule: &str, expected: bool) -> Result<()> {
        self.wcprof.attach(name, pids, "")?;
        let found = rules(&self.wcprof.json(name, "doctor")?, "time");
        println!("{name}: {}", found.join(", "));
        if found.iter().any(|f| f == rule) != expected {
            let not = if expected { "not " } else { "" };
            self.wrong.push(format!("{name}: {rule} is {not}found"));
        }
        Ok(())
    }
}
