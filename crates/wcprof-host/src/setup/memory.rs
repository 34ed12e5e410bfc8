//! Memory of a process: huge pages, KSM, and the NUMA nodes it lies on.

use std::collections::BTreeMap;

use wcprof_types::Pid;
use wcprof_types::snapshot::{NumaMemory, ProcessSetup};

use crate::procfs::cgroups;

use super::tree::{Absent, Tree, fields, leading_number};

/// Resident memory, KiB, above which files that walk page tables are not read: 16 GiB.
pub const MAX_WALK_KIB: u64 = 16 << 20;
const MAX_NUMA_MAPS: usize = 32 << 20;

/// Whether files are read for which the kernel walks the process's page tables, with its memory lock held: it can
/// map nothing meanwhile.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Walk {
    /// They are.
    PageTables,
    /// They are not.
    Nothing,
}

pub(super) fn read(tree: &Tree, pid: Pid, walk: Walk, setup: &mut ProcessSetup) {
    let dir = &format!("/proc/{pid}");
    setup.ksm_merging_pages = tree.number(&format!("{dir}/ksm_merging_pages"));
    let resident = setup.status.get("VmRSS").and_then(|v| leading_number(v));
    let is_small = !tree.is_live() || resident.unwrap_or(0) <= MAX_WALK_KIB;
    let may_walk = is_small && walk == Walk::PageTables;
    if may_walk {
        let text = tree.locked_text(pid, "smaps_rollup", 1 << 16, Absent::Fine);
        let sums = text.as_deref().map(fields).into_iter().flatten();
        // The first line is a mapping's, with addresses.
        let is_sum = |(key, _): &(&str, &str)| !key.contains(' ');
        setup.rollup_kib = sums
            .filter(is_sum)
            .filter_map(|(key, value)| Some((key.to_owned(), leading_number(value)?)))
            .collect();
    } else if walk == Walk::PageTables {
        let gib = MAX_WALK_KIB >> 20;
        tree.left_out(
            &format!("{dir}/smaps_rollup"),
            format!("walks the page tables of more than {gib} GiB, which would delay the process"),
        );
    }
    let nodes = tree.names("/sys/devices/system/node");
    let numbers = nodes.iter().filter_map(|name| name.strip_prefix("node"));
    if numbers.filter(|n| n.parse::<u32>().is_ok()).count() > 1 {
        let walked = may_walk.then(|| numa_maps(tree, pid)).flatten();
        setup.numa = walked.or_else(|| numa_stat(tree, dir));
    }
}

/// Pages by node of every mapping (`N0=12 kernelpagesize_kB=4`).
fn numa_maps(tree: &Tree, pid: Pid) -> Option<NumaMemory> {
    let text = tree.locked_text(pid, "numa_maps", MAX_NUMA_MAPS, Absent::Noted)?;
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines() {
        let page_kib = line
            .split(' ')
            .find_map(|f| f.strip_prefix("kernelpagesize_kB="))
            .and_then(|v| v.parse::<u64>().ok())
            .unwrap_or(4);
        for field in line.split(' ').filter_map(|f| f.strip_prefix('N')) {
            if let Some((node, pages)) = field.split_once('=')
                && let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>())
            {
                let sum = bytes.entry(node).or_default();
                *sum = sum.saturating_add(pages.saturating_mul(page_kib).saturating_mul(1024));
            }
        }
    }
    let source = format!("/proc/{pid}/numa_maps");
    Some(NumaMemory { bytes, source })
}

/// Anonymous memory by node of the process's control group, which costs nothing to read.
fn numa_stat(tree: &Tree, dir: &str) -> Option<NumaMemory> {
    let groups = tree.text(&format!("{dir}/cgroup"))?;
    let (_, group) = cgroups(&groups).find(|(controllers, _)| controllers.is_empty())?;
    let source = format!("/sys/fs/cgroup{group}/memory.numa_stat");
    let text = tree.text(&source)?;
    let anon = text.lines().find_map(|l| l.strip_prefix("anon "))?;
    let bytes = anon
        .split(' ')
        .filter_map(|f| {
            let (node, bytes) = f.strip_prefix('N')?.split_once('=')?;
            Some((node.parse().ok()?, bytes.parse().ok()?))
        })
        .collect();
    Some(NumaMemory { bytes, source })
}
