//! `cargo xtask lab operations`: loads whose operations are counted by who asks for them (fio, curl, a guest) to what
//! wcprof says that one of them costs, by Ceph's own count.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ceph;
use super::conf::{self, Mode};
use super::fio::{self, Options};
use super::gateway;
use super::place::Lab;
use super::supervise::supervised;
use super::vm;
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
/// A guest counts in steps of five seconds, which are not those of the recording.
const GUEST_PERCENT: f64 = 5.0;

/// Objects that are read through the gateway.
const OBJECTS: u32 = 200;

/// Makes a cluster and checks each load; the lab is down afterwards.
///
/// # Errors
/// When a cluster runs already, a program fails, or the figures differ.
pub fn run(lab: &Lab) -> Result<()> {
    supervised(lab, || {
        let wcprof = Wcprof::new("lab-operations", RECORDING, 99)?;
        ceph::up(lab, &conf::Options::one_osd(Mode::Crc, false))?;
        let osd = lab.osd()?.pid;
        let mut wrong = Vec::new();
        for (rw, size) in [("randread", "16k"), ("randwrite", "4k"), ("randrw", "8k")] {
            let load = Options {
                seconds: LOAD,
                ..Options::sized(rw, size)
            };
            let name = format!("{rw} {size}");
            wrong.extend(check(&wcprof, &name, osd, || fio::count(lab, &load))?);
        }
        let gateway = gateway::up(lab)?;
        wrong.extend(check(&wcprof, "gateway", gateway.pid, || {
            gateway::read_object_times(lab, OBJECTS)?;
            Ok(OBJECTS.into())
        })?);
        wrong.extend(guest(lab, &wcprof)?);
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Records a process while others ask it for operations, and gives what is wrong. `load` gives how many they were.
fn check(
    wcprof: &Wcprof,
    name: &str,
    pid: i32,
    load: impl FnOnce() -> Result<f64>,
) -> Result<Vec<String>> {
    let before = cpu_time(pid)?;
    let file = name.replace(' ', "-");
    let (recorded, done) = thread::scope(|scope| {
        let attach = scope.spawn(|| wcprof.attach(&file, &[pid], "--ceph"));
        // All of the load must lie in the recording.
        thread::sleep(Duration::from_secs(3));
        let begin = Instant::now();
        let done = load().map(|n| (n, begin.elapsed()));
        (attach.join(), done)
    });
    let cpu_us = (cpu_time(pid)? - before).as_secs_f64() * 1e6;
    recorded.map_err(|_| anyhow::anyhow!("the recording thread panicked"))??;
    let (done, took) = done?;
    ensure!(
        took < Duration::from_secs(u64::from(RECORDING - 4)),
        "{name}: the load took {took:?}, longer than the recording lasts"
    );
    let class = counting_class(wcprof, &file)?;
    let costs = &class["per_operation"];
    let counted = number(&class["operations"]["all"]["n"]);
    let us = number(&costs["total"]["cpu_us"]);
    let sum = |list_of: &Value| {
        list(list_of)
            .map(|part| number(&part["cpu_us"]))
            .sum::<f64>()
    };
    let (pools, work) = (sum(&costs["pools"]), sum(&costs["work"]));
    println!(
        "{name}: {done:.0} operations, Ceph counted {counted:.0}; each took {us:.1} us of CPU time, by the kernel {:.1}; \
         the pools add up to {pools:.1}, the kinds of work to {work:.1}",
        cpu_us / done
    );
    let found = [
        ("operations", counted, done, COUNT_PERCENT),
        ("CPU time of an operation", us, cpu_us / done, COST_PERCENT),
        ("sum of the pools", pools, us, 0.1),
        ("sum of the kinds of work", work, us, 0.1),
    ];
    Ok(found
        .iter()
        .filter_map(|found| judge(name, *found))
        .collect())
}

/// A guest's own count of reads and writes to that of librbd in QEMU.
fn guest(lab: &Lab, wcprof: &Wcprof) -> Result<Vec<String>> {
    let name = "guest";
    vm::up(lab, &vm::Options::uncached(16384, 50))?;
    let machine = lab.machine()?.context("the virtual machine is gone")?;
    let n_before = vm::reports(lab).len();
    wcprof.attach(name, &[machine.pid], "--ceph")?;
    let reports = vm::reports(lab).split_off(n_before);
    let speed = reports.iter().sum::<f64>() / reports.len() as f64;
    let class = counting_class(wcprof, name)?;
    // A flush is none of the guest's reads and writes.
    let kinds = list(&class["operations"]["kinds"]);
    let counted: f64 = kinds
        .filter(|kind| kind["name"] != "flush")
        .map(|kind| number(&kind["n"]))
        .sum();
    let share = counted / number(&class["operations"]["all"]["n"]);
    let per_second = number(&class["operations"]["per_second"]) * share;
    println!("{name}: {speed:.0} operations a second, librbd counted {per_second:.0}");
    let found = ("operations a second", per_second, speed, GUEST_PERCENT);
    Ok(judge(name, found).into_iter().collect())
}

/// The processes of a recording that counted operations.
fn counting_class(wcprof: &Wcprof, name: &str) -> Result<Value> {
    let report = wcprof.json(name, "report")?;
    let mut classes = list(&report["cores"]["classes"]);
    let class = classes.find(|class| !class["operations"].is_null());
    class.cloned().context("no process counted operations")
}

/// What is wrong with a figure: what it is, the figure, what it should be, and how many percent it may differ.
fn judge(name: &str, (what, found, expected, percent): (&str, f64, f64, f64)) -> Option<String> {
    let off = 100.0 * (found / expected - 1.0).abs();
    // What is not a number is wrong, too.
    (off.is_nan() || off > percent)
        .then(|| format!("{name}: {what}: {found:.1} instead of {expected:.1}, {off:.1} % off"))
}
