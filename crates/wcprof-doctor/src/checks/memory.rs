//! Huge pages, transparent and reserved; KSM; swap.

use super::{Kind, bytes, plural};
use crate::report::{Out, setting};

const ID_SMALL_PAGES: &str = "qemu-small-pages";
const ID_RESERVED: &str = "huge-pages-unused";
const ID_THP_DEFRAG: &str = "thp-defrag";
const ID_KSM: &str = "ksm";
const ID_SWAP: &str = "swapped-out";

/// Guests smaller than this gain nothing worth a change.
const MIN_GUEST_KIB: u64 = 1 << 20;
/// Share of huge pages from which on a guest is taken to have them.
const MOSTLY_PERCENT: u64 = 50;
/// Reserved memory that nothing uses, from which on it is said.
const MIN_RESERVED_KIB: u64 = 256 << 10;
/// Swapped memory below this is what no one touches.
const MIN_SWAP_KIB: u64 = 16 << 10;

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    huge_pages(out, kind);
    ksm(out);
    let process = &out.snapshot.process;
    match kib(out, "VmSwap") {
        Some(swap) if swap >= MIN_SWAP_KIB => {
            let value = bytes(swap << 10);
            let origin = format!("/proc/{}/status", process.pid);
            out.found(ID_SWAP, vec![setting("VmSwap", value, origin)], &[]);
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

/// `always [madvise] never` to `madvise`.
fn chosen(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(chosen, _)| chosen)
}

fn huge_pages(out: &mut Out<'_>, kind: &Kind) {
    let snapshot = out.snapshot;
    let (process, host) = (&snapshot.process, &snapshot.host);
    let reserved: u64 = kib(out, "HugetlbPages").unwrap_or(0);
    let resident = kib(out, "VmRSS");
    let transparent = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]
        .iter()
        .filter_map(|key| process.rollup_kib.get(*key))
        .fold(0_u64, |sum, n| sum.saturating_add(*n));
    let thp = host.thp.get("enabled").map(|t| chosen(t));
    let text = format!(
        "{} in reserved huge pages, {} in transparent ones, of {} resident",
        bytes(reserved << 10),
        bytes(transparent.min(1 << 50) << 10),
        bytes(resident.unwrap_or(0) << 10),
    );
    let guest = resident.unwrap_or(0).max(reserved);
    let huge = reserved.saturating_add(transparent);
    if matches!(kind, Kind::Qemu(_)) && guest >= MIN_GUEST_KIB {
        if process.rollup_kib.is_empty() && reserved == 0 {
            out.unknown(
                ID_SMALL_PAGES,
                "how much of the guest is in transparent huge pages was not read",
                "`grep AnonHugePages /proc/PID/smaps_rollup` as root",
            );
        } else if huge.saturating_mul(100) / guest < MOSTLY_PERCENT {
            let mut found = vec![setting("memory", text.clone(), "status, smaps_rollup")];
            let enabled = "/sys/kernel/mm/transparent_hugepage/enabled";
            found.extend(thp.map(|t| setting("transparent huge pages", t, enabled)));
            out.found(ID_SMALL_PAGES, found, &[]);
        } else {
            out.passed(ID_SMALL_PAGES, text.clone());
        }
    } else {
        out.passed(ID_SMALL_PAGES, text);
    }
    unused(out, reserved);
    let defrag = host.thp.get("defrag").map(|d| chosen(d));
    let disabled = process.status.get("THP_enabled").map(String::as_str) == Some("0");
    match (thp, defrag) {
        (Some("always"), Some("always")) if !disabled => {
            let folder = "/sys/kernel/mm/transparent_hugepage";
            let found = vec![
                setting("enabled", "always", format!("{folder}/enabled")),
                setting("defrag", "always", format!("{folder}/defrag")),
            ];
            out.found(ID_THP_DEFRAG, found, &[]);
        }
        (Some(thp), defrag) => {
            let own = if disabled {
                "; off for this process"
            } else {
                ""
            };
            out.passed(
                ID_THP_DEFRAG,
                format!("enabled {thp}, defrag {}{own}", defrag.unwrap_or("unknown")),
            );
        }
        _ => {}
    }
}

/// Huge pages that are set aside while nothing uses them.
fn unused(out: &mut Out<'_>, used_here: u64) {
    let pools = &out.snapshot.host.huge_pages;
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for pool in pools {
        let free = pool.free.saturating_mul(pool.size_kib);
        let text = format!(
            "{} of {} free",
            pool.free,
            plural(usize::try_from(pool.total).unwrap_or(usize::MAX), "page"),
        );
        let size = format!("huge pages of {} KiB", pool.size_kib);
        if pool.free == pool.total && free >= MIN_RESERVED_KIB && used_here == 0 {
            let path = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", pool.size_kib);
            let value = format!(
                "{text}: {} that nothing uses",
                bytes(free.min(1 << 50) << 10)
            );
            found.push(setting(size, value, path));
        } else {
            seen.push(format!("{size}: {text}"));
        }
    }
    out.found_or_passed(ID_RESERVED, found, seen.join(", "));
}

fn ksm(out: &mut Out<'_>) {
    let snapshot = out.snapshot;
    let ksm = &snapshot.host.ksm;
    let Some(run) = ksm.get("run") else {
        return;
    };
    let own = snapshot.process.ksm_merging_pages;
    if run == "1" {
        let mut found = vec![setting("run", "1", "/sys/kernel/mm/ksm/run")];
        if let Some(sharing) = ksm.get("pages_sharing") {
            let origin = "/sys/kernel/mm/ksm/pages_sharing";
            found.push(setting("pages saved on this host", sharing.clone(), origin));
        }
        if let Some(own) = own {
            let origin = format!("/proc/{}/ksm_merging_pages", snapshot.process.pid);
            found.push(setting("pages of this process", own.to_string(), origin));
        }
        out.found(ID_KSM, found, &[]);
    } else {
        out.passed(ID_KSM, "off");
    }
}
