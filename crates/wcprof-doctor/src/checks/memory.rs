//! Huge pages, transparent and reserved; KSM; swap.

use wcprof_text::{bytes, count};

use super::kind::Kind;
use super::words::chosen;
use crate::report::{Out, setting};

const ID_SMALL_PAGES: &str = "qemu-small-pages";
const ID_RESERVED: &str = "huge-pages-unused";
const ID_THP_DEFRAG: &str = "thp-defrag";
const ID_KSM: &str = "ksm";
const ID_SWAP: &str = "swapped-out";

/// Guests smaller than this gain nothing worth a change.
const MIN_GUEST_KIB: u64 = 1 << 20;
/// A guest with at least this share of huge pages has them.
const MOSTLY_PERCENT: u64 = 50;
/// Less reserved memory that nothing uses is not worth a finding.
const MIN_RESERVED_KIB: u64 = 256 << 10;
/// Less swapped memory is what no one touches.
const MIN_SWAP_KIB: u64 = 16 << 10;

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    huge_pages(out, kind);
    ksm(out);
    let process = &out.snapshot.process;
    match kib(out, "VmSwap") {
        Some(swap) if swap >= MIN_SWAP_KIB => {
            let value = bytes(swap << 10);
            let origin = format!("/proc/{}/status", process.pid);
            out.found(ID_SWAP, [setting("VmSwap", value, origin)]);
        }
        Some(swap) => out.passed(ID_SWAP, format!("{swap} KiB")),
        None => {}
    }
}

/// A line of `status`, KiB.
fn kib(out: &Out<'_>, key: &str) -> Option<u64> {
    let value = out.snapshot.process.status.get(key)?;
    let n: u64 = value.split_ascii_whitespace().next()?.parse().ok()?;
    (n < 1 << 50).then_some(n)
}

fn huge_pages(out: &mut Out<'_>, kind: &Kind) {
    let snapshot = out.snapshot;
    let (process, host) = (&snapshot.process, &snapshot.host);
    let reserved: u64 = kib(out, "HugetlbPages").unwrap_or(0);
    let resident = kib(out, "VmRSS");
    let transparent = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"].into_iter();
    let transparent = transparent.filter_map(|key| process.rollup_kib.get(key));
    let transparent = transparent.fold(0_u64, |sum, n| sum.saturating_add(*n));
    let thp = host.thp.get("enabled").and_then(|t| chosen(t));
    let in_transparent = match process.rollup_kib.is_empty() {
        true => String::new(),
        false => format!(
            ", {} in transparent ones",
            bytes(transparent.min(1 << 50) << 10)
        ),
    };
    let text = format!(
        "{} in reserved huge pages{in_transparent}, of {} resident",
        bytes(reserved << 10),
        bytes(resident.unwrap_or(0) << 10),
    );
    let guest = resident.unwrap_or(0).max(reserved);
    let huge = reserved.saturating_add(transparent);
    if !matches!(kind, Kind::Qemu(_)) || guest < MIN_GUEST_KIB {
        out.passed(ID_SMALL_PAGES, text);
    } else if process.rollup_kib.is_empty() && reserved == 0 {
        out.unknown(
            ID_SMALL_PAGES,
            "how much of the guest is in transparent huge pages was not read",
            "`wcprof doctor PID` as root (recordings leave it out)",
        );
    } else if huge.saturating_mul(100) / guest < MOSTLY_PERCENT {
        let mut found = vec![setting("memory", text, "status, smaps_rollup")];
        let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
        found.extend(thp.map(|t| setting("transparent huge pages", t, enabled)));
        out.found(ID_SMALL_PAGES, found);
    } else {
        out.passed(ID_SMALL_PAGES, text);
    }
    unused(out, reserved);
    let defrag = host.thp.get("defrag").and_then(|d| chosen(d));
    let disabled = process.status.get("THP_enabled").map(String::as_str) == Some("0");
    match (thp, defrag) {
        (Some("always"), Some("always")) if !disabled => {
            let file = |name| format!("/sys/kernel/mm/transparent_hugepage/{name}");
            let found = ["enabled", "defrag"].map(|name| setting(name, "always", file(name)));
            out.found(ID_THP_DEFRAG, found);
        }
        (Some(thp), defrag) => {
            let own = ["", "; off for this process"][usize::from(disabled)];
            let defrag = defrag.unwrap_or("unknown");
            let seen = format!("enabled {thp}, defrag {defrag}{own}");
            out.passed(ID_THP_DEFRAG, seen);
        }
        _ => {}
    }
}

/// Huge pages that are set aside while nothing uses them.
fn unused(out: &mut Out<'_>, used_here: u64) {
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for pool in &out.snapshot.host.huge_pages {
        let free = pool.free.saturating_mul(pool.size_kib);
        let text = format!(
            "{} of {} free",
            pool.free,
            count(pool.total as usize, "page")
        );
        let size = format!("huge pages of {} KiB", pool.size_kib);
        if pool.free == pool.total && free >= MIN_RESERVED_KIB && used_here == 0 {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", pool.size_kib);
            let unused = bytes(free.min(1 << 50) << 10);
            let value = format!("{text}: {unused} that nothing uses");
            found.push(setting(size, value, path));
        } else {
            seen.push(format!("{size}: {text}"));
        }
    }
    out.found_or_passed(ID_RESERVED, found, seen.join(", "));
}

fn ksm(out: &mut Out<'_>) {
    let process = &out.snapshot.process;
    let ksm = &out.snapshot.host.ksm;
    match ksm.get("run").map(String::as_str) {
        Some("1") => {
            let sharing = ksm.get("pages_sharing").map(|n| {
                let origin = "/sys/kernel/mm/ksm/pages_sharing";
                setting("pages saved on this host", n, origin)
            });
            let own = process.ksm_merging_pages.map(|n| {
                let origin = format!("/proc/{}/ksm_merging_pages", process.pid);
                setting("pages of this process", n.to_string(), origin)
            });
            let run = setting("run", "1", "/sys/kernel/mm/ksm/run");
            out.found(ID_KSM, [Some(run), sharing, own].into_iter().flatten());
        }
        Some(_) => out.passed(ID_KSM, "off"),
        None => {}
    }
}
