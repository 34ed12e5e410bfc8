//! `cargo xtask lab operations`: loads whose operations fio counts to what wcprof says that one of them costs, by Ceph's
//! own count.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ceph;
use super::conf::{self, Mode};
use super::fio::{self, Options};
use super::place::Lab;
use super::supervise::supervised;
use super::wcprof::Wcprof;
use crate::cpu_time::cpu_time;
use crate::process::{list, number};

/// Ceph's count may differ so much from fio's: opening and closing the image are operations, too.
const COUNT_PERCENT: f64 = 2.0;
/// CPU time of an operation may differ so much from fio's count and the kernel's clock.
const COST_PERCENT: f64 = 5.0;
/// Seconds of a load, and of the recording around it.
const LOAD: u32 = 15;
const RECORDING: u32 = 24;

/// Makes a cluster and checks each load; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a program fails, or the figures differ.
pub fn run(lab: &Lab) -> Result<()> {
    supervised(lab, || {
        let wcprof = Wcprof::new("lab-operations", RECORDING, 99)?;
        ceph::up(lab, &conf::Options::one_osd(Mode::Crc, false))?;
        let wrong = [("randread", "16k"), ("randwrite", "4k"), ("randrw", "8k")]
            .map(|(rw, size)| check(lab, &wcprof, rw, size));
        let wrong = wrong.into_iter().collect::<Result<Vec<_>>>()?.concat();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Gives what is wrong.
fn check(lab: &Lab, wcprof: &Wcprof, rw: &str, size: &str) -> Result<Vec<String>> {
    let osd = lab.osd()?.pid;
    let load = Options {
        seconds: LOAD,
        ..Options::sized(rw, size)
    };
    let before = cpu_time(osd)?;
    let (recorded, done) = thread::scope(|scope| {
        let attach = scope.spawn(|| wcprof.attach(rw, &[osd], "--ceph"));
        // All of the load must lie in the recording.
        thread::sleep(Duration::from_secs(3));
        let done = fio::count(lab, &load);
        (attach.join(), done)
    });
    let cpu_us = (cpu_time(osd)? - before).as_secs_f64() * 1e6;
    recorded.map_err(|_| anyhow::anyhow!("the recording thread panicked"))??;
    let done = done?;
    let report = wcprof.json(rw, "report")?;
    let mut classes = list(&report["cores"]["classes"]);
    let osd = classes.find(|class| class["class"] == "ceph-osd");
    let osd = osd.context("the report has no OSD")?;
    let costs = &osd["per_operation"];
    let counted = number(&osd["operations"]["all"]["n"]);
    let us = number(&costs["total"]["cpu_us"]);
    let sum = |list_of: &Value| {
        list(list_of)
            .map(|part| number(&part["cpu_us"]))
            .sum::<f64>()
    };
    let (pools, work) = (sum(&costs["pools"]), sum(&costs["work"]));
    println!(
        "{rw} {size}: fio did {done:.0}, Ceph counted {counted:.0}; an operation took {us:.1} us of CPU time, by fio and \
         the kernel {:.1}; the pools add up to {pools:.1}, the kinds of work to {work:.1}",
        cpu_us / done
    );
    let mut wrong = Vec::new();
    for (what, found, expected, percent) in [
        ("operations", counted, done, COUNT_PERCENT),
        ("CPU time of an operation", us, cpu_us / done, COST_PERCENT),
        ("sum of the pools", pools, us, 0.1),
        ("sum of the kinds of work", work, us, 0.1),
    ] {
        let off = 100.0 * (found / expected - 1.0).abs();
        // What is not a number is wrong, too.
        if off.is_nan() || off > percent {
            wrong.push(format!(
                "{rw} {size}: {what}: {found:.1} instead of {expected:.1}, {off:.1} % off"
            ));
        }
    }
    Ok(wrong)
}
