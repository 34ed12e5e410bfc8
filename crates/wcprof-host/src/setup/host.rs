//! `/proc` and `/sys` to the setup of a host.

use std::collections::BTreeMap;

use wcprof_types::snapshot::{HostSetup, HugePages, NumaNode, ProcessSetup, limits};

use super::tree::{Absent, Tree, field, leading_number};
use super::{accounts, devices, process};

const MAX_CPUS: usize = 8192;
/// CPU features that advice rests on.
const FLAGS: [&str; 13] = [
    "hypervisor",
    "aes",
    "pclmulqdq",
    "movbe",
    "avx",
    "avx2",
    "avx512f",
    "avx512dq",
    "avx512bw",
    "avx512vl",
    "vaes",
    "vpclmulqdq",
    "sse4_2",
];

const KSM: [&str; 6] = [
    "run",
    "pages_shared",
    "pages_sharing",
    "full_scans",
    "pages_to_scan",
    "sleep_millisecs",
];
const THP: [&str; 2] = ["enabled", "defrag"];

pub(super) fn read(tree: &Tree, process: &mut ProcessSetup) -> HostSetup {
    let text = |path: &str| tree.text(path).unwrap_or_default();
    let cpuinfo = tree.long_text("/proc/cpuinfo", 64 << 10, Absent::Fine);
    let cpuinfo = cpuinfo.unwrap_or_default();
    let flags = field(&cpuinfo, "flags").unwrap_or_default();
    let has_flag = |flag: &str| flags.split(' ').any(|f| f == flag);
    let meminfo = text("/proc/meminfo");
    let (vhost, irqbalance) = process::others(tree, process.pid);
    process.vhost = vhost;
    let mut host = HostSetup {
        name: text("/proc/sys/kernel/hostname"),
        kernel: text("/proc/sys/kernel/osrelease"),
        cpus: text("/sys/devices/system/cpu/online"),
        cpu_model: field(&cpuinfo, "model name").unwrap_or_default().to_owned(),
        cpu_flags: FLAGS
            .into_iter()
            .filter(|f| has_flag(f))
            .map(str::to_owned)
            .collect(),
        nodes: nodes(tree),
        ksm: values(tree, "/sys/kernel/mm/ksm", &KSM),
        thp: values(tree, "/sys/kernel/mm/transparent_hugepage", &THP),
        huge_pages: huge_pages(tree),
        memory_kib: field(&meminfo, "MemTotal").and_then(leading_number),
        devices: devices::of_process(tree, process),
        nics: devices::nics(tree),
        delay_accounting: accounts::delay_accounting(tree),
        pressure: Some(accounts::has_pressure(tree)),
        irqbalance,
        ..HostSetup::default()
    };
    frequencies(tree, &mut host);
    host
}

fn values(tree: &Tree, folder: &str, names: &[&str]) -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), tree.text(&format!("{folder}/{name}"))?));
    names.iter().filter_map(value).collect()
}

fn nodes(tree: &Tree) -> Vec<NumaNode> {
    let folder = "/sys/devices/system/node";
    let names = tree.names(folder);
    let mut nodes: Vec<NumaNode> = names
        .iter()
        .filter_map(|name| {
            Some(NumaNode {
                id: name.strip_prefix("node")?.parse().ok()?,
                cpus: tree.text(&format!("{folder}/{name}/cpulist"))?,
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes.truncate(limits::NODES);
    nodes
}

fn huge_pages(tree: &Tree) -> Vec<HugePages> {
    let folder = "/sys/kernel/mm/hugepages";
    let names = tree.names(folder);
    let number = |name: &str, file: &str| tree.number(&format!("{folder}/{name}/{file}"));
    names
        .iter()
        .filter_map(|name| {
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            Some(HugePages {
                size_kib: size.parse().ok()?,
                total: number(name, "nr_hugepages")?,
                free: number(name, "free_hugepages")?,
            })
        })
        .filter(|pages: &HugePages| pages.total > 0)
        .collect()
}

/// Governors are a policy's, not a CPU's.
fn frequencies(tree: &Tree, host: &mut HostSetup) {
    let folder = "/sys/devices/system/cpu/cpufreq";
    let policies = tree.names(folder);
    let policies = policies.iter().filter(|p| p.starts_with("policy"));
    for policy in policies.take(MAX_CPUS) {
        let file = |name: &str| tree.text(&format!("{folder}/{policy}/{name}"));
        let cpus = file("affected_cpus").map_or(1, |c| c.split_ascii_whitespace().count() as u64);
        if let Some(governor) = file("scaling_governor") {
            *host.governors.entry(governor).or_default() += cpus;
        }
        if let Some(preference) = file("energy_performance_preference") {
            *host.energy_preferences.entry(preference).or_default() += cpus;
        }
        if host.cpufreq_driver.is_none() {
            host.cpufreq_driver = file("scaling_driver");
        }
    }
}
