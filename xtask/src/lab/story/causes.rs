//! `cargo xtask lab story --causes`: all causes of the story at once, and each alone taken away, to what an operation then costs by
//! the kernel's CPU clocks, and to whether the first screen has the causes in that order.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::bench::stats::Ratio;
use crate::cpu_time::cpu_time;
use crate::lab::admin::image_counters;
use crate::lab::conf::{self, Mode};
use crate::lab::place::Lab;
use crate::lab::vm::{self, Cache};
use crate::lab::wcprof::Wcprof;
use crate::lab::{ceph, story::steps::BLOCK_SIZE};
use crate::markdown::table;

/// Rounds, in each of which each cause is taken away once: as many pairs for each.
const N_ROUNDS: usize = 5;
/// Seconds from the guest's first operations to a measurement, and seconds of a measurement.
const SETTLE: u64 = 3;
const MEASURED: u64 = 7;

/// Something that costs CPU time, and can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoryCause {
    Cache,
    QemuMalloc,
    OsdMalloc,
    Secure,
}

const CAUSES: [StoryCause; 4] = [
    StoryCause::Cache,
    StoryCause::QemuMalloc,
    StoryCause::OsdMalloc,
    StoryCause::Secure,
];

impl StoryCause {
    fn name(self) -> &'static str {
        match self {
            Self::Cache => "rbd cache",
            Self::QemuMalloc => "libc's malloc in QEMU",
            Self::OsdMalloc => "libc's malloc in the OSD",
            Self::Secure => "secure mode",
        }
    }

    /// A part of its item's text on the first screen. One item says what to do about malloc in both programs.
    fn text(self) -> &'static str {
        match self {
            Self::Cache => "rbd cache",
            Self::QemuMalloc | Self::OsdMalloc => "libc's malloc",
            Self::Secure => "ecure mode",
        }
    }
}

/// What an operation of the guest costs, µs of CPU time.
#[derive(Debug, Clone, Copy)]
struct OperationCost {
    /// Without the threads that emulate the guest's processor: with KVM there is no such work.
    qemu: f64,
    osd: f64,
}

impl OperationCost {
    fn sum(self) -> f64 {
        self.qemu + self.osd
    }
}

/// What was measured of one cause.
#[derive(Debug)]
struct MeasuredCause {
    cause: StoryCause,
    /// Cost of an operation without it by the cost with all.
    ratio: Ratio,
    /// Its item on each of the first screens, from 0; `None` where no item says it.
    ranks: Vec<Option<usize>>,
}

/// Measures all causes, and writes `causes.md`.
///
/// # Errors
/// When a step fails, or the first screen has two causes in the wrong order.
pub fn run(lab: &Lab, wcprof: &Wcprof) -> Result<()> {
    let mut all: Vec<OperationCost> = Vec::new();
    let mut without: [Vec<OperationCost>; CAUSES.len()] = Default::default();
    let mut screens = Vec::new();
    ceph::up(lab, &cluster(None))?;
    for round in 0..N_ROUNDS {
        for (cause, costs) in CAUSES.into_iter().zip(&mut without) {
            all.push(measure_setup(lab, None)?);
            if all.len() == round * CAUSES.len() + 1 {
                screens.push(first_screen(lab, wcprof, round)?);
            }
            costs.push(measure_setup(lab, Some(cause))?);
        }
    }
    all.push(measure_setup(lab, None)?);
    let mut measured = Vec::new();
    for (at, (cause, costs)) in CAUSES.into_iter().zip(&without).enumerate() {
        let pairs = costs.iter().enumerate().map(|(round, cost)| {
            let before = round * CAUSES.len() + at;
            (around(&all, before), cost.sum())
        });
        measured.push(MeasuredCause {
            cause,
            ratio: Ratio::new(&pairs.collect::<Vec<_>>()).context("an operation cost nothing")?,
            ranks: screens.iter().map(|screen| rank(screen, cause)).collect(),
        });
    }
    let report = report(&all, &without, &measured);
    print!("{report}");
    let screen = screens
        .last()
        .map_or_else(String::new, |items| items.join("\n"));
    let file = wcprof.folder.join("causes.md");
    fs::write(&file, format!("{report}\n```\n{screen}\n```\n"))?;
    println!("report: {}", file.display());
    let wrong = inverted(&measured);
    ensure!(
        wrong.is_empty(),
        "the first screen has the wrong order:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// The cost with all causes around a measurement without one: the geometric mean of that before it and that behind it. What else
/// the machine does changes within minutes.
fn around(all: &[OperationCost], before: usize) -> f64 {
    let sum = |at: usize| all.get(at).map_or(0.0, |cost| cost.sum());
    (sum(before) * sum(before + 1)).sqrt()
}

/// Starts the cluster and the machine anew, which run on, and measures them.
fn measure_setup(lab: &Lab, removed: Option<StoryCause>) -> Result<OperationCost> {
    ceph::restart(lab, &cluster(removed))?;
    vm::up(lab, &machine(removed))?;
    let cost = measure(lab)?;
    let name = removed.map_or("all", StoryCause::name);
    println!("{name}: QEMU {:.1}, OSD {:.1} us", cost.qemu, cost.osd);
    Ok(cost)
}

fn cluster(removed: Option<StoryCause>) -> conf::Options {
    let mode = match removed {
        Some(StoryCause::Secure) => Mode::Crc,
        _ => Mode::Secure,
    };
    conf::Options::one_osd(mode, removed == Some(StoryCause::OsdMalloc))
}

fn machine(removed: Option<StoryCause>) -> vm::Options {
    vm::Options {
        cache: match removed {
            Some(StoryCause::Cache) => Cache::None,
            _ => Cache::Writeback,
        },
        tcmalloc: removed == Some(StoryCause::QemuMalloc),
        ..vm::Options::uncached(BLOCK_SIZE, 0)
    }
}

/// CPU time of an operation over some seconds, by clocks of the kernel and librbd's count.
fn measure(lab: &Lab) -> Result<OperationCost> {
    let qemu = lab.machine()?.context("QEMU does not run")?.pid;
    let osd = lab.osd()?.pid;
    let socket = lab.file("vm.asok");
    let read = || -> Result<_> {
        let qemu = cpu_time(qemu)?.saturating_sub(processors_time(qemu)?);
        Ok((
            qemu,
            cpu_time(osd)?,
            image_counters(&socket, &["rd", "wr"])?,
        ))
    };
    thread::sleep(Duration::from_secs(SETTLE));
    let before = read()?;
    thread::sleep(Duration::from_secs(MEASURED));
    let after = read()?;
    let n_done = after.2.saturating_sub(before.2);
    ensure!(n_done > 0, "the guest does not read any more");
    let us =
        |after: Duration, before| after.saturating_sub(before).as_secs_f64() * 1e6 / n_done as f64;
    Ok(OperationCost {
        qemu: us(after.0, before.0),
        osd: us(after.1, before.1),
    })
}

/// CPU time of QEMU's threads that emulate the guest's processors.
fn processors_time(pid: i32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let folder = task?.path();
        if fs::read_to_string(folder.join("comm"))?.starts_with("CPU ") {
            let text = fs::read_to_string(folder.join("schedstat"))?;
            let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
            sum += Duration::from_nanos(ns.context("`schedstat` has no time")?);
        }
    }
    Ok(sum)
}

/// Records QEMU and the OSD together, and gives the items of what to do on the first screen.
fn first_screen(lab: &Lab, wcprof: &Wcprof, round: usize) -> Result<Vec<String>> {
    let qemu = lab.machine()?.context("QEMU does not run")?.pid;
    let screen = wcprof.attach(
        &format!("causes-{round}"),
        &[qemu, lab.osd()?.pid],
        "--ceph",
    )?;
    Ok(items(&screen))
}

/// The items below `WHAT TO DO`, each in one line.
fn items(screen: &str) -> Vec<String> {
    let mut lines = screen
        .lines()
        .skip_while(|line| !line.starts_with("WHAT TO DO"));
    let mut items: Vec<String> = Vec::new();
    for line in lines.by_ref().skip(1).take_while(|line| !line.is_empty()) {
        let is_first = line
            .get(..3)
            .is_some_and(|number| number.trim().parse::<u32>().is_ok());
        match items.last_mut() {
            Some(item) if !is_first => *item = format!("{item} {}", line.trim()),
            _ => items.push(line.trim().to_owned()),
        }
    }
    items
}

/// The item of a cause.
fn rank(items: &[String], cause: StoryCause) -> Option<usize> {
    items.iter().position(|item| item.contains(cause.text()))
}

/// Pairs of causes of which one surely gives back more than the other, and stands below it on most first screens. An item of
/// several causes stands for the one that gives most.
fn inverted(measured: &[MeasuredCause]) -> Vec<String> {
    let mut wrong = Vec::new();
    for more in measured {
        for less in measured {
            let is_less = |other: &MeasuredCause| more.ratio.high < other.ratio.low;
            let is_above = |screen: usize| {
                let item = less.ranks[screen];
                let shares_item = |other: &&MeasuredCause| other.ranks[screen] == item;
                item.is_some_and(|item| more.ranks[screen].is_none_or(|rank| item < rank))
                    && measured.iter().filter(shares_item).all(is_less)
            };
            let n_screens = more.ranks.len();
            let n = (0..n_screens).filter(|screen| is_above(*screen)).count();
            if is_less(less) && 2 * n > n_screens {
                let [less, more] =
                    [less, more].map(|m| format!("{} ({})", m.cause.name(), m.ratio));
                wrong.push(format!(
                    "{less} stands above {more} on {n} of {n_screens} screens"
                ));
            }
        }
    }
    wrong
}

/// The measurements as a table.
fn report(
    all: &[OperationCost],
    without: &[Vec<OperationCost>],
    measured: &[MeasuredCause],
) -> String {
    let mean = |costs: &[OperationCost], of: fn(&OperationCost) -> f64| {
        costs.iter().map(of).sum::<f64>() / costs.len().max(1) as f64
    };
    let costs = |costs: &[OperationCost]| {
        [
            format!("{:.0}", mean(costs, |cost| cost.qemu)),
            format!("{:.0}", mean(costs, |cost| cost.osd)),
        ]
    };
    let head = [
        "removed",
        "QEMU, us",
        "OSD, us",
        "gain in both",
        "95 % interval",
        "item",
    ];
    let mut rows = vec![vec!["nothing".to_owned()]];
    rows[0].extend(costs(all));
    rows[0].extend(["", "", ""].map(str::to_owned));
    for (measured, without) in measured.iter().zip(without) {
        let gain = |ratio: f64| 100.0 * (1.0 - ratio);
        let ratio = measured.ratio;
        let ranks = measured.ranks.iter().map(|rank| match rank {
            Some(rank) => (rank + 1).to_string(),
            None => "-".to_owned(),
        });
        let mut row = vec![measured.cause.name().to_owned()];
        row.extend(costs(without));
        row.push(format!("{:.1} %", gain(ratio.mean)));
        row.push(format!("{:.1} to {:.1}", gain(ratio.high), gain(ratio.low)));
        row.push(ranks.collect::<Vec<_>>().join(", "));
        rows.push(row);
    }
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(cause: StoryCause, low: f64, high: f64, rank: Option<usize>) -> MeasuredCause {
        MeasuredCause {
            cause,
            ratio: Ratio {
                mean: f64::midpoint(low, high),
                low,
                high,
            },
            ranks: vec![rank; N_ROUNDS],
        }
    }

    /// Check that only what surely gives back more must stand above, that an item stands for the best of its causes, and that what
    /// is missing stands below all.
    #[test]
    fn order() {
        let cache = |rank| measured(StoryCause::Cache, 0.90, 0.95, rank);
        let osd = |low, high| measured(StoryCause::OsdMalloc, low, high, Some(1));
        let qemu = measured(StoryCause::QemuMalloc, 0.99, 1.02, Some(1));
        assert!(inverted(&[cache(Some(0)), osd(0.92, 0.97)]).is_empty());
        assert_eq!(inverted(&[cache(Some(0)), osd(0.70, 0.75)]).len(), 1);
        assert!(inverted(&[cache(Some(2)), osd(0.70, 0.75), qemu]).is_empty());
        assert_eq!(inverted(&[cache(Some(2)), osd(0.97, 0.99)]).len(), 1);
        assert_eq!(inverted(&[cache(None), osd(0.97, 0.99)]).len(), 1);
    }

    /// Check that a measurement is compared with those beside it.
    #[test]
    fn pairs() {
        let cost = |osd| OperationCost { qemu: 0.0, osd };
        let all = [cost(1.0), cost(4.0), cost(9.0)];
        assert!((around(&all, 0) - 2.0).abs() < 1e-9);
        assert!((around(&all, 1) - 6.0).abs() < 1e-9);
    }

    /// Check that lines which were wrapped are one item.
    #[test]
    fn wrapped_items() {
        let screen = "head\n\nWHAT TO DO (most first)\n 1 0.20 cores    The rbd cache is\n                 on -> cache=none\n 2 0.10 cores    b -> c\n\nWHERE\n";
        let items = items(screen);
        assert_eq!(
            items,
            [
                "1 0.20 cores    The rbd cache is on -> cache=none",
                "2 0.10 cores    b -> c"
            ]
        );
        assert_eq!(rank(&items, StoryCause::Cache), Some(0));
        assert_eq!(rank(&items, StoryCause::Secure), None);
    }
}
