//! `cargo xtask lab crypto`: loads of known sizes to the frames that `wcprof crypto observe` sees at both
//! ends, compared with what the protocol says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use super::fio::{Load, Options};
use super::place::Lab;
use super::{ceph, conf, vm};
use crate::process::{build_release, capture_json, wait_until};

/// At least this share of the frames of each direction must have the form that the load causes; the
/// others are maps, pings, and what was sent while a watch began.
const SHARE: f64 = 0.9;
/// Fewer frames prove nothing.
const FEWEST: u64 = 20;
/// Lengths of fronts vary with object names and operations.
const FRONT: std::ops::RangeInclusive<u64> = 64..=512;

/// What a frame carries.
#[derive(Copy, Clone, Debug)]
enum Data {
    /// Nothing.
    None,
    /// This many bytes in one buffer.
    One(u64),
    /// This many bytes, in any number of buffers.
    Pieces(u64),
    /// This many bytes after a map of their extents: the answer to a sparse read.
    Sparse(u64),
}

/// From this size on, librbd uses sparse reads (`rbd_sparse_read_threshold_bytes`,
/// src/common/options/rbd.yaml.in).
const SPARSE_FROM: u64 = 64 << 10;
/// Extents are no smaller than a block of the image's file system on BlueStore.
const SMALLEST_EXTENT: u64 = 4096;

/// One watch of one process.
struct Watch {
    what: String,
    pid: i32,
    rx: Data,
    tx: Data,
}

/// Makes a cluster, runs all loads on it, and takes it down again.
///
/// # Errors
/// When the lab can not be made, or frames have other forms than the protocol says.
pub fn run(lab: &Lab) -> Result<()> {
    let wcprof = build_release()?;
    ceph::up(lab, &conf::Options::default())?;
    let result = fio_loads(lab, &wcprof).and_then(|()| guest_load(lab, &wcprof));
    let down = ceph::down(lab, true);
    result.and(down)
}

fn fio_loads(lab: &Lab, wcprof: &Path) -> Result<()> {
    println!(
        "{:<34} {:>6} {:>7}  most frequent frame",
        "watched", "frames", "as said"
    );
    // Reads first: the image was filled in large pieces, and writes of 4 KiB cut it.
    let loads = [
        ("randread", 4),
        ("randread", 16),
        ("randread", 64),
        ("randwrite", 64),
        ("randwrite", 16),
        ("randwrite", 4),
    ];
    for (rw, kib) in loads {
        let load = Load::start(lab, &Options::sized(rw, &format!("{kib}k")), "")?;
        let client = messenger(load.pid())?;
        let bytes = kib << 10;
        let reads = rw == "randread";
        let sparse = (bytes >= SPARSE_FROM).then_some(Data::Sparse(bytes));
        let of = |is: bool, data| if is { data } else { Data::None };
        let watches = [
            Watch {
                what: format!("{rw} {kib} KiB, client"),
                pid: client,
                rx: of(reads, sparse.unwrap_or(Data::One(bytes))),
                tx: of(!reads, Data::One(bytes)),
            },
            Watch {
                what: format!("{rw} {kib} KiB, OSD"),
                pid: lab.osd()?.pid,
                rx: of(!reads, Data::One(bytes)),
                tx: of(reads, sparse.unwrap_or(Data::Pieces(bytes))),
            },
        ];
        for watch in &watches {
            check(watch, wcprof)?;
        }
        load.stop()?;
    }
    Ok(())
}

/// A guest that only writes: its four pages are four buffers when they are sent, and one when received.
fn guest_load(lab: &Lab, wcprof: &Path) -> Result<()> {
    let bytes = 16384;
    for (writes, what) in [(100, "writes"), (0, "reads")] {
        vm::up(lab, &vm::Options::sized(bytes, writes))?;
        let machine = lab.machine()?.context("the machine has ended")?;
        let bytes = u64::from(bytes);
        let (rx, tx) = match writes {
            0 => (Data::One(bytes), Data::None),
            _ => (Data::None, Data::Pieces(bytes)),
        };
        let result = check(
            &Watch {
                what: format!("QEMU guest, {what} 16 KiB, client"),
                pid: machine.pid,
                rx,
                tx,
            },
            wcprof,
        );
        vm::down(lab)?;
        result?;
    }
    Ok(())
}

/// The process with messenger threads: `pid` or a child of it.
fn messenger(pid: i32) -> Result<i32> {
    let mut found = None;
    wait_until("fio connects", Duration::from_secs(30), || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let mut pids = std::iter::once(pid).chain(
            children
                .split_whitespace()
                .filter_map(|word| word.parse().ok()),
        );
        found = pids.find(|pid| has_messenger(*pid));
        Ok(found.is_some())
    })?;
    // It still opens the image.
    std::thread::sleep(Duration::from_secs(3));
    found.context("fio has no messenger")
}

fn has_messenger(pid: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.starts_with("msgr-worker"))
    })
}

fn check(watch: &Watch, wcprof: &Path) -> Result<()> {
    let mut observe = Command::new(wcprof);
    observe.args(["crypto", "observe", "--json", "-d", "0.5"]);
    let json = capture_json(observe.arg(watch.pid.to_string()))?;
    let reason = &json["reason"];
    ensure!(json["source"] == "live", "nothing was observed: {reason}");
    let burst = &json["burst"];
    ensure!(
        burst["removal"] == "verified",
        "breakpoints: {}",
        burst["removal"]
    );
    let status = fs::read_to_string(format!("/proc/{}/status", watch.pid))?;
    ensure!(
        status.contains("TracerPid:\t0\n"),
        "something traces the process"
    );
    for (side, data) in [("rx", watch.rx), ("tx", watch.tx)] {
        let seen = frames(&json["observation"]["shapes"], side)?;
        let n: u64 = seen.iter().map(|(_, count)| count).sum();
        let n_as_said: u64 = seen
            .iter()
            .filter(|(calls, _)| is_as_said(calls, side, data))
            .map(|(_, count)| count)
            .sum();
        let most = seen.iter().max_by_key(|(_, count)| *count);
        let most = most.map_or("", |(calls, _)| calls);
        let share = n_as_said as f64 / n.max(1) as f64;
        println!(
            "{:<34} {n:>6} {:>5.1} %  {most}",
            format!("{}, {side}", watch.what),
            100.0 * share
        );
        ensure!(
            n >= FEWEST && share >= SHARE,
            "{} {side}: {n_as_said} of {n} frames carry {data:?}: {seen:?}",
            watch.what
        );
    }
    Ok(())
}

fn frames(shapes: &Value, side: &str) -> Result<Vec<(String, u64)>> {
    let shapes = shapes.as_array().context("observe lists no shapes")?;
    let of_side = shapes.iter().filter(|shape| shape["side"] == side);
    Ok(of_side
        .filter_map(|shape| {
            Some((
                shape["calls"].as_str()?.to_owned(),
                shape["count"].as_u64()?,
            ))
        })
        .collect())
}

/// Whether these calls are a message of Ceph's messenger with this data: two units, in the order in
/// which each direction makes its calls.
fn is_as_said(calls: &str, side: &str, data: Data) -> bool {
    let units: Vec<Option<Vec<u64>>> = calls.split('|').map(lengths).collect();
    let [Some(first), Some(second)] = units.as_slice() else {
        return false;
    };
    match (side, first.as_slice(), second.as_slice()) {
        ("rx", [80, 0], [front, middle @ .., 16, 0]) => {
            FRONT.contains(front) && front % 16 == 0 && carries(middle, data)
        }
        ("tx", [32, 48], [front, middle @ .., 16]) => {
            let middle = match middle {
                // Zeros up to a block.
                [pad, rest @ ..] if (front + pad) % 16 == 0 && *pad < 16 => rest,
                rest if front % 16 == 0 => rest,
                _ => return false,
            };
            FRONT.contains(front) && carries(middle, data)
        }
        _ => false,
    }
}

fn carries(buffers: &[u64], data: Data) -> bool {
    match data {
        Data::None => buffers.is_empty(),
        Data::One(bytes) => buffers == [bytes],
        Data::Pieces(bytes) => buffers.iter().sum::<u64>() == bytes,
        Data::Sparse(bytes) => is_sparse(buffers.iter().sum(), bytes),
    }
}

/// Whether a segment of `sum` bytes can be a map of extents (a count of 4 bytes, 16 for each) and a
/// length of 4 bytes before `bytes`, padded to whole blocks (src/osd/PrimaryLogPG.cc, do_sparse_read).
fn is_sparse(sum: u64, bytes: u64) -> bool {
    let mut n_extents = 1..=bytes / SMALLEST_EXTENT;
    n_extents.any(|n| (bytes + 8 + 16 * n).next_multiple_of(16) == sum)
}

/// `182,10,4096x4,16` to eight lengths.
fn lengths(unit: &str) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for part in unit.split(',').map(str::trim) {
        let (len, times) = part.split_once('x').unwrap_or((part, "1"));
        let times: usize = times.parse().ok()?;
        if times > 10_000 {
            return None;
        }
        all.extend(std::iter::repeat_n(len.parse::<u64>().ok()?, times));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check frames of real traffic against what they carry, and others.
    #[test]
    fn forms() {
        let is = is_as_said;
        assert!(is("80,0 | 192,16384,16,0", "rx", Data::One(16384)));
        assert!(is("80,0 | 256,16,0", "rx", Data::None));
        assert!(is("32,48 | 247,9,16", "tx", Data::None));
        assert!(is("32,48 | 285,3,4096x4,16", "tx", Data::Pieces(16384)));
        assert!(is("32,48 | 192,8192x2,16", "tx", Data::Pieces(16384)));
        assert!(!is("32,48 | 285,3,4096x4,16", "tx", Data::One(16384)));
        assert!(is("80,0 | 192,65568,16,0", "rx", Data::Sparse(65536)));
        assert!(is(
            "32,48 | 182,10,20,4,28672,4096,32768,8,16",
            "tx",
            Data::Sparse(65536)
        ));
        assert!(!is("80,0 | 192,65536,16,0", "rx", Data::Sparse(65536)));
        assert!(!is("80,0 | 192,65576,16,0", "rx", Data::Sparse(65536)));
        assert!(!is("80,0 | 192,16384,16,0", "rx", Data::None));
        assert!(!is("80,0 | 192,16384,16,0", "tx", Data::One(16384)));
        assert!(!is("32,48 | 247,16", "tx", Data::None));
        assert!(!is("80,0", "rx", Data::None));
        assert!(!is("80,0 | x,16,0", "rx", Data::None));
        assert!(!is("80,0 | 192x99999999999,16,0", "rx", Data::None));
    }
}
