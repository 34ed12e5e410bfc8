//! Where threads, interrupts and memory are: pinning, NUMA nodes, governors.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_text::{bytes, count};
use wcprof_types::snapshot::ThreadSetup;
use wcprof_types::{cpu_list, parse_cpus};

use super::kind::Kind;
use crate::report::{Out, setting};

const ID_NUMA_REMOTE: &str = "numa-memory-remote";
const ID_NUMA_SPREAD: &str = "numa-spread";
const ID_IRQ_NODE: &str = "irq-affinity";
const ID_IRQ_ONE_CPU: &str = "irq-one-cpu";
const ID_NARROW: &str = "cpu-narrow";
const ID_VHOST: &str = "vhost-placement";
const ID_GOVERNOR: &str = "cpu-governor";

/// Memory on nodes where no thread may run: below this share it is libraries and page cache.
const REMOTE_PERCENT: u64 = 20;
/// Memory too small to matter.
const MIN_BYTES: u64 = 256 << 20;
/// Queues from which on one CPU for all interrupts is a bottleneck.
const MANY_QUEUES: usize = 4;

pub(super) fn check(out: &mut Out<'_>, kind: &Kind) {
    let threads = &out.snapshot.process.threads;
    let cpus = cpus_of(threads);
    if cpus.is_empty() {
        out.unknown(
            ID_NUMA_REMOTE,
            "the CPUs of the threads are not known",
            "`taskset -acp PID`",
        );
    } else {
        let nodes = out.snapshot.host.nodes.iter();
        let nodes = nodes.map(|n| (n.id, parse_cpus(&n.cpus))).collect();
        numa(out, &nodes, &cpus);
        interrupts(out, &nodes, &cpus);
        narrow(out, kind, &cpus);
        vhost(out, kind, &nodes);
    }
    governor(out);
}

type Cpus = BTreeSet<u32>;
/// CPUs by NUMA node.
type Nodes = BTreeMap<u32, Cpus>;

/// The CPUs of all threads. Their lists are read as one: many name the same CPUs.
fn cpus_of<'a>(threads: impl IntoIterator<Item = &'a ThreadSetup>) -> Cpus {
    let lists = threads.into_iter().map(|thread| thread.cpus.as_str());
    parse_cpus(&lists.collect::<Vec<_>>().join(","))
}

/// Nodes on which one of `cpus` is.
fn nodes_of(nodes: &Nodes, cpus: &Cpus) -> BTreeSet<u32> {
    let on = nodes.iter().filter(|(_, n)| !n.is_disjoint(cpus));
    on.map(|(&id, _)| id).collect()
}

fn numa(out: &mut Out<'_>, nodes: &Nodes, cpus: &Cpus) {
    if nodes.values().filter(|cpus| !cpus.is_empty()).count() < 2 {
        let n = count(nodes.len().max(1), "NUMA node");
        out.passed(ID_NUMA_REMOTE, format!("{n}: nothing is remote"));
        return;
    }
    let Some(memory) = &out.snapshot.process.numa else {
        let reason = "memory by node is not known";
        out.unknown(ID_NUMA_REMOTE, reason, "`numastat -p PID`");
        return;
    };
    let may_run = nodes_of(nodes, cpus);
    let sum = |bytes: u64, (_, n): (&u32, &u64)| bytes.saturating_add(*n);
    let total: u64 = memory.bytes.iter().fold(0, sum);
    let remote = memory
        .bytes
        .iter()
        .filter(|(node, _)| !may_run.contains(node));
    let remote: u64 = remote.fold(0, sum);
    let by_node = memory
        .bytes
        .iter()
        .map(|(node, n)| format!("node {node}: {}", bytes(*n)));
    let by_node = by_node.collect::<Vec<_>>().join(", ");
    let node = cpu_list(&may_run);
    let allowed = format!("{} (node {node})", cpu_list(cpus));
    let found = vec![
        setting("memory", &by_node, &memory.source),
        setting("CPUs its threads may use", allowed, "Cpus_allowed_list"),
    ];
    let is_large = |part: u64| part.saturating_mul(100) / total.max(1) >= REMOTE_PERCENT;
    let n_large = memory.bytes.values().filter(|n| is_large(**n)).count();
    if total < MIN_BYTES {
        out.passed(ID_NUMA_REMOTE, format!("{} in all", bytes(total)));
    } else if is_large(remote) {
        out.found_with(ID_NUMA_REMOTE, found, &[("node", &node)]);
    } else if may_run.len() > 1 && n_large > 1 {
        out.found(ID_NUMA_SPREAD, found);
    } else {
        out.passed(ID_NUMA_REMOTE, by_node);
    }
}

fn interrupts(out: &mut Out<'_>, nodes: &Nodes, cpus: &Cpus) {
    let host = &out.snapshot.host;
    let home = nodes_of(nodes, cpus);
    let blocks = host.devices.iter().map(|d| (&d.name, &d.irqs, d.numa_node));
    let nics = host.nics.iter().map(|n| (&n.name, &n.irqs, n.numa_node));
    let (mut remote, mut single, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    let n_cpus = parse_cpus(&host.cpus).len();
    for (name, irqs, node) in blocks.chain(nics) {
        let Some(first) = irqs.first() else { continue };
        let lists: Vec<&str> = irqs.iter().map(|irq| irq.cpus.as_str()).collect();
        let cpus = parse_cpus(&lists.join(","));
        let on = nodes_of(nodes, &cpus);
        let mut text = format!(
            "{} on CPUs {} (node {})",
            count(irqs.len(), "interrupt"),
            cpu_list(&cpus),
            cpu_list(&on),
        );
        if let Some(node) = node.filter(|n| *n >= 0) {
            text.push_str(&format!(", the device is on node {node}"));
        }
        let origin = format!("/proc/irq/{}", first.number);
        // The process is bound to some of the nodes, the interrupts come in on others alone.
        if home.len() < nodes.len() && !home.is_empty() && !on.is_empty() && on.is_disjoint(&home) {
            remote.push(setting(name, &text, &origin));
        }
        if irqs.len() >= MANY_QUEUES && cpus.len() == 1 && n_cpus >= MANY_QUEUES {
            single.push(setting(name, &text, &origin));
        }
        seen.push(format!("{name}: {text}"));
    }
    let has_irqbalance = host.irqbalance == Some(true);
    if remote.is_empty() {
        let mut text = seen.join("; ");
        if has_irqbalance && !text.is_empty() {
            text.push_str("; irqbalance runs, and may move them");
        }
        out.passed(ID_IRQ_NODE, text);
    } else {
        let undone = "runs: it would undo what is set by hand";
        remote.extend(has_irqbalance.then(|| setting("irqbalance", undone, "/proc")));
        out.found_with(ID_IRQ_NODE, remote, &[("node", &cpu_list(&home))]);
    }
    out.found(ID_IRQ_ONE_CPU, single);
}

/// Many working threads on very few CPUs of a large host.
fn narrow(out: &mut Out<'_>, kind: &Kind, cpus: &Cpus) {
    let threads = &out.snapshot.process.threads;
    let n_online = parse_cpus(&out.snapshot.host.cpus).len();
    let is_narrow = match kind {
        Kind::Osd | Kind::Gateway => cpus.len() < 2,
        // Main loop, iothreads and messengers need a place beside the vCPUs.
        Kind::Qemu(_) => {
            let n_vcpus = threads.iter().filter(|t| is_vcpu(t)).count();
            cpus.len() < n_vcpus.max(1).min(n_online)
        }
        _ => false,
    };
    if is_narrow && n_online > cpus.len() {
        let online = "/sys/devices/system/cpu/online";
        let allowed = cpu_list(cpus);
        let found = [
            setting("CPUs its threads may use", allowed, "Cpus_allowed_list"),
            setting("threads", threads.len().to_string(), "task"),
            setting("CPUs online", n_online.to_string(), online),
        ];
        out.found(ID_NARROW, found);
    } else {
        let lists: BTreeSet<&str> = threads.iter().map(|t| t.cpus.as_str()).collect();
        let seen = format!(
            "{} may use CPUs {}, in {}",
            count(threads.len(), "thread"),
            cpu_list(cpus),
            count(lists.len(), "set"),
        );
        out.passed(ID_NARROW, seen);
    }
}

/// `CPU 0/KVM`, as QEMU names them with debug-threads=on.
fn is_vcpu(thread: &ThreadSetup) -> bool {
    thread.comm.starts_with("CPU ") && thread.comm.contains('/')
}

/// vhost threads and vCPUs: the same node, other CPUs.
fn vhost(out: &mut Out<'_>, kind: &Kind, nodes: &Nodes) {
    let process = &out.snapshot.process;
    let own = process
        .threads
        .iter()
        .filter(|t| t.comm.starts_with("vhost-"));
    let vhost: Vec<&ThreadSetup> = process.vhost.iter().chain(own).collect();
    if vhost.is_empty() || !matches!(kind, Kind::Qemu(_)) {
        return;
    }
    let vcpus = cpus_of(process.threads.iter().filter(|t| is_vcpu(t)));
    let served = cpus_of(vhost.iter().copied());
    let (of_vcpus, of_vhost) = (nodes_of(nodes, &vcpus), nodes_of(nodes, &served));
    let is_pinned = !vcpus.is_empty() && vcpus != parse_cpus(&out.snapshot.host.cpus);
    let is_apart = of_vcpus.is_disjoint(&of_vhost) && !of_vhost.is_empty();
    let (on, vhost_on) = (cpu_list(&vcpus), cpu_list(&served));
    if is_pinned && (is_apart || served.is_subset(&vcpus)) {
        let name = count(vhost.len(), "vhost thread");
        let found = [("vCPUs".to_owned(), on), (name, vhost_on)];
        let found =
            found.map(|(name, on)| setting(name, format!("CPUs {on}"), "Cpus_allowed_list"));
        out.found(ID_VHOST, found);
    } else {
        out.passed(ID_VHOST, format!("vCPUs on {on}, vhost on {vhost_on}"));
    }
}

fn governor(out: &mut Out<'_>) {
    let host = &out.snapshot.host;
    if host.governors.is_empty() {
        let seen = "no cpufreq: a virtual machine, whose host decides";
        let (reason, next) = ("no cpufreq in /sys", "the firmware's power profile");
        match host.cpu_flags.iter().any(|f| f == "hypervisor") {
            true => out.passed(ID_GOVERNOR, seen),
            false => out.unknown(ID_GOVERNOR, reason, next),
        }
        return;
    }
    let driver = host.cpufreq_driver.as_deref().unwrap_or("unknown");
    let list = |map: &BTreeMap<String, u64>| {
        let parts = map
            .iter()
            .map(|(k, n)| format!("{k} ({})", count(*n as usize, "CPU")));
        parts.collect::<Vec<_>>().join(", ")
    };
    let text = format!("{}, driver {driver}", list(&host.governors));
    // These drivers choose frequencies themselves; their `powersave` is bounded by the preference.
    let own_choice = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    let has =
        |map: &BTreeMap<String, u64>, names: [&str; 2]| names.iter().any(|n| map.contains_key(*n));
    let is_slow = match own_choice {
        true => {
            has(&host.energy_preferences, ["power", "balance_power"])
                && !host.governors.contains_key("performance")
        }
        false => has(&host.governors, ["powersave", "conservative"]),
    };
    if is_slow {
        let mut found = vec![setting("governor", text, "/sys/devices/system/cpu/cpufreq")];
        let file = "energy_performance_preference";
        let preference = || setting("energy preference", list(&host.energy_preferences), file);
        found.extend(own_choice.then(preference));
        out.found(ID_GOVERNOR, found);
    } else {
        out.passed(ID_GOVERNOR, text);
    }
}
