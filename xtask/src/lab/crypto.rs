//! `cargo xtask lab crypto`: loads of known sizes to the frames that `wcprof crypto observe` sees at both
//! ends, compared with what the protocol says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::conf::{self, Mode};
use super::fio::{Load, Options};
use super::place::Lab;
use super::supervise::supervised;
use super::{ceph, vm};
use crate::process::{build_release, capture_json, command, list, number, text};

/// At least this share of the frames of each direction must have the form that the load causes; the
/// others are maps, pings, and what was sent while a watch began.
const SHARE: f64 = 0.9;
/// Fewer frames prove nothing.
const FEWEST: f64 = 20.0;
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

/// Makes a cluster, runs all loads on it, and takes it down again.
///
/// # Errors
/// When the lab cannot be made, or frames have other forms than the protocol says.
pub fn run(lab: &Lab) -> Result<()> {
    supervised(lab, || {
        let wcprof = build_release()?;
        ceph::up(lab, &conf::Options::one_osd(Mode::Secure, false))?;
        fio_loads(lab, &wcprof)?;
        guest_loads(lab, &wcprof)
    })
}

fn fio_loads(lab: &Lab, wcprof: &str) -> Result<()> {
    println!(
        "{:<34} {:>6} {:>7}  most frequent frame",
        "watched", "frames", "as said"
    );
    // Reads first: the image was filled in large pieces, and writes of 4 KiB cut it.
    for (rw, kib) in [
        ("randread", 4),
        ("randread", 16),
        ("randread", 64),
        ("randwrite", 64),
        ("randwrite", 16),
        ("randwrite", 4),
    ] {
        // A thread, not a child process.
        let load = Load::start(lab, &Options::sized(rw, &format!("{kib}k")), "--thread=1")?;
        // It connects and opens the image.
        std::thread::sleep(Duration::from_secs(6));
        let bytes = kib << 10;
        let (received, sent) = match bytes < SPARSE_FROM {
            true => (Data::One(bytes), Data::Pieces(bytes)),
            false => (Data::Sparse(bytes), Data::Sparse(bytes)),
        };
        let (client, osd) = match rw {
            "randread" => ((received, Data::None), (Data::None, sent)),
            _ => (
                (Data::None, Data::One(bytes)),
                (Data::One(bytes), Data::None),
            ),
        };
        let what = format!("{rw} {kib} KiB");
        check(
            wcprof,
            &format!("{what}, client"),
            load.process.pid(),
            client,
        )?;
        check(wcprof, &format!("{what}, OSD"), lab.osd()?.pid, osd)?;
        load.stop()?;
    }
    Ok(())
}

/// A guest that writes, then one that reads: its four pages are four buffers when they are sent, and one when
/// received.
fn guest_loads(lab: &Lab, wcprof: &str) -> Result<()> {
    let bytes = 16384;
    for (what, writes, data) in [
        ("writes", 100, (Data::None, Data::Pieces(bytes))),
        ("reads", 0, (Data::One(bytes), Data::None)),
    ] {
        vm::up(lab, &vm::Options::uncached(bytes, writes))?;
        let pid = lab.machine()?.context("the machine has ended")?.pid;
        let result = check(
            wcprof,
            &format!("QEMU guest, {what} 16 KiB, client"),
            pid,
            data,
        );
        vm::down(lab)?;
        result?;
    }
    Ok(())
}

/// Watches a process, and checks what the frames carry that it receives and sends.
fn check(wcprof: &str, what: &str, pid: i32, (rx, tx): (Data, Data)) -> Result<()> {
    let observe = format!("{wcprof} crypto observe --json -d 0.5 {pid}");
    let json = capture_json(command(&observe))?;
    let (reason, removal) = (&json["reason"], &json["burst"]["removal"]);
    ensure!(json["source"] == "live", "nothing was observed: {reason}");
    ensure!(removal == "verified", "breakpoints: {removal}");
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    ensure!(
        status.contains("TracerPid:\t0\n"),
        "something traces the process"
    );
    for (side, data) in [("rx", rx), ("tx", tx)] {
        let (mut n, mut n_as_said, mut most) = (0.0, 0.0, (0.0, ""));
        for shape in list(&json["observation"]["shapes"]).filter(|shape| shape["side"] == side) {
            let (calls, count) = (text(&shape["calls"]), number(&shape["count"]));
            n += count;
            n_as_said += if is_as_said(calls, side, data) {
                count
            } else {
                0.0
            };
            most = if count > most.0 { (count, calls) } else { most };
        }
        let share = n_as_said / n.max(1.0);
        let (percent, most) = (100.0 * share, most.1);
        println!(
            "{:<34} {n:>6} {percent:>5.1} %  {most}",
            format!("{what}, {side}")
        );
        ensure!(
            n >= FEWEST && share >= SHARE,
            "{what} {side}: {n_as_said} of {n} frames carry {data:?}: {json}"
        );
    }
    Ok(())
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

/// `182,10,4096x4,16` to seven lengths.
fn lengths(unit: &str) -> Option<Vec<u64>> {
    let parts = unit.split(',').map(|part| {
        let (len, times) = part.trim().split_once('x').unwrap_or((part.trim(), "1"));
        Some(vec![len.parse().ok()?; times.parse().ok()?])
    });
    Some(parts.collect::<Option<Vec<_>>>()?.concat())
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
    }
}
