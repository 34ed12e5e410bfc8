//! Where threads, interrupts and memory are: pinning, NUMA nodes, governors.

use std::collections::{BTreeMap, BTreeSet};

use wcprof_findings::Setting;
use wcprof_types::snapshot::{Irq, ThreadSetup};

use super::{Kind, bytes, plural};
use crate::cpu_list;
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
    let cpus: BTreeSet<u32> = threads
        .iter()
        .flat_map(|t| cpu_list::parse(&t.cpus))
        .collect();
    if threads.is_empty() || cpus.is_empty() {
        out.unknown(
            ID_NUMA_REMOTE,
            "the CPUs of the threads are not known",
            "`taskset -acp PID`",
        );
    } else {
        numa(out, &cpus);
        interrupts(out, &cpus);
        narrow(out, kind, &cpus);
        vhost(out, kind);
    }
    governor(out);
}

/// Nodes by their CPUs.
fn nodes(out: &Out<'_>) -> BTreeMap<u32, BTreeSet<u32>> {
    let nodes = out.snapshot.host.nodes.iter();
    nodes.map(|n| (n.id, cpu_list::parse(&n.cpus))).collect()
}

/// Nodes on which one of `cpus` is.
fn nodes_of(nodes: &BTreeMap<u32, BTreeSet<u32>>, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
    let on = nodes.iter().filter(|(_, n)| !n.is_disjoint(cpus));
    on.map(|(&id, _)| id).collect()
}

fn names(nodes: &BTreeSet<u32>) -> String {
    cpu_list::list(nodes)
}

fn numa(out: &mut Out<'_>, cpus: &BTreeSet<u32>) {
    let nodes = nodes(out);
    let n_with_cpus = nodes.values().filter(|cpus| !cpus.is_empty()).count();
    if n_with_cpus < 2 {
        let n = plural(nodes.len().max(1), "NUMA node");
        out.passed(ID_NUMA_REMOTE, format!("{n}: nothing is remote"));
        return;
    }
    let may_run = nodes_of(&nodes, cpus);
    let Some(memory) = &out.snapshot.process.numa else {
        out.unknown(
            ID_NUMA_REMOTE,
            "memory by node is not known",
            "`numastat -p PID`",
        );
        return;
    };
    let total: u64 = memory
        .bytes
        .values()
        .fold(0, |sum, n| sum.saturating_add(*n));
    let on = |wanted: &dyn Fn(&u32) -> bool| -> u64 {
        let of = memory.bytes.iter().filter(|(node, _)| wanted(node));
        of.fold(0, |sum, (_, n)| sum.saturating_add(*n))
    };
    let remote = on(&|node| !may_run.contains(node));
    let by_node: Vec<String> = memory
        .bytes
        .iter()
        .map(|(node, n)| format!("node {node}: {}", bytes(*n)))
        .collect();
    let found = vec![
        setting("memory", by_node.join(", "), memory.source.clone()),
        setting(
            "CPUs its threads may use",
            format!("{} (node {})", cpu_list::list(cpus), names(&may_run)),
            "Cpus_allowed_list",
        ),
    ];
    let share = |part: u64| part.saturating_mul(100) / total.max(1);
    if total < MIN_BYTES {
        out.passed(ID_NUMA_REMOTE, format!("{} in all", bytes(total)));
    } else if share(remote) >= REMOTE_PERCENT {
        let node = names(&may_run);
        out.found(ID_NUMA_REMOTE, found, &[("node", &node)]);
    } else if may_run.len() > 1
        && memory
            .bytes
            .values()
            .filter(|n| share(**n) >= REMOTE_PERCENT)
            .count()
            > 1
    {
        out.found(ID_NUMA_SPREAD, found, &[]);
    } else {
        out.passed(ID_NUMA_REMOTE, by_node.join(", "));
    }
}

/// CPUs of a device's interrupts.
fn irq_cpus(irqs: &[Irq]) -> BTreeSet<u32> {
    irqs.iter().flat_map(|i| cpu_list::parse(&i.cpus)).collect()
}

fn interrupts(out: &mut Out<'_>, cpus: &BTreeSet<u32>) {
    let host = &out.snapshot.host;
    let nodes = nodes(out);
    let home = nodes_of(&nodes, cpus);
    let blocks = host.devices.iter().map(|d| (&d.name, &d.irqs, d.numa_node));
    let nics = host.nics.iter().map(|n| (&n.name, &n.irqs, n.numa_node));
    let mut remote: Vec<Setting> = Vec::new();
    let mut single: Vec<Setting> = Vec::new();
    let mut seen = Vec::new();
    let n_cpus = cpu_list::parse(&host.cpus).len();
    for (name, irqs, node) in blocks.chain(nics).filter(|(_, irqs, _)| !irqs.is_empty()) {
        let cpus = irq_cpus(irqs);
        let on = nodes_of(&nodes, &cpus);
        let text = format!(
            "{} on CPUs {} (node {}){}",
            plural(irqs.len(), "interrupt"),
            cpu_list::list(&cpus),
            names(&on),
            node.filter(|n| *n >= 0)
                .map_or(String::new(), |n| format!(", the device is on node {n}")),
        );
        let origin = format!("/proc/irq/{}", irqs.first().map_or(0, |i| i.number));
        // The process is bound to some of the nodes, the interrupts come in on others alone.
        if home.len() < nodes.len() && !home.is_empty() && !on.is_empty() && on.is_disjoint(&home) {
            remote.push(setting(name.clone(), text.clone(), origin.clone()));
        }
        if irqs.len() >= MANY_QUEUES && cpus.len() == 1 && n_cpus >= MANY_QUEUES {
            single.push(setting(name.clone(), text.clone(), origin));
        }
        seen.push(format!("{name}: {text}"));
    }
    let node = names(&home);
    if remote.is_empty() {
        let mut text = seen.join("; ");
        if host.irqbalance == Some(true) && !text.is_empty() {
            text.push_str("; irqbalance runs, and may move them");
        }
        out.passed(ID_IRQ_NODE, text);
    } else {
        if host.irqbalance == Some(true) {
            remote.push(setting(
                "irqbalance",
                "runs: it would undo what is set by hand",
                "/proc",
            ));
        }
        out.found(ID_IRQ_NODE, remote, &[("node", &node)]);
    }
    out.found_or_passed(ID_IRQ_ONE_CPU, single, "");
}

/// Many working threads on very few CPUs of a large host.
fn narrow(out: &mut Out<'_>, kind: &Kind, cpus: &BTreeSet<u32>) {
    let process = &out.snapshot.process;
    let n_online = cpu_list::parse(&out.snapshot.host.cpus).len();
    let lists: BTreeSet<&str> = process.threads.iter().map(|t| t.cpus.as_str()).collect();
    let seen = format!(
        "{} may use CPUs {}, in {}",
        plural(process.threads.len(), "thread"),
        cpu_list::list(cpus),
        plural(lists.len(), "set"),
    );
    let needs: usize = match kind {
        Kind::Osd | Kind::Gateway => 2,
        Kind::Qemu(_) => process.threads.iter().filter(|t| is_vcpu(t)).count().max(1),
        _ => 1,
    };
    let tight = match kind {
        Kind::Osd | Kind::Gateway => cpus.len() < needs,
        // Main loop, iothreads and messengers need a place beside the vCPUs.
        Kind::Qemu(_) => cpus.len() < needs.min(n_online),
        _ => false,
    };
    if tight && n_online > cpus.len() {
        let found = vec![
            setting(
                "CPUs its threads may use",
                cpu_list::list(cpus),
                "Cpus_allowed_list",
            ),
            setting("threads", process.threads.len().to_string(), "task"),
            setting(
                "CPUs online",
                n_online.to_string(),
                "/sys/devices/system/cpu/online",
            ),
        ];
        out.found(ID_NARROW, found, &[]);
    } else {
        out.passed(ID_NARROW, seen);
    }
}

/// `CPU 0/KVM`, as QEMU names them with debug-threads=on.
fn is_vcpu(thread: &ThreadSetup) -> bool {
    thread.comm.starts_with("CPU ") && thread.comm.contains('/')
}

/// vhost threads and vCPUs: the same node, other CPUs.
fn vhost(out: &mut Out<'_>, kind: &Kind) {
    let process = &out.snapshot.process;
    let own = process
        .threads
        .iter()
        .filter(|t| t.comm.starts_with("vhost-"));
    let vhost: Vec<&ThreadSetup> = process.vhost.iter().chain(own).collect();
    if vhost.is_empty() || !matches!(kind, Kind::Qemu(_)) {
        return;
    }
    let cpus = |t: &&ThreadSetup| cpu_list::parse(&t.cpus);
    let vcpus: BTreeSet<u32> = process
        .threads
        .iter()
        .filter(|t| is_vcpu(t))
        .flat_map(|t| cpus(&t))
        .collect();
    let all = cpu_list::parse(&out.snapshot.host.cpus);
    let served: BTreeSet<u32> = vhost.iter().flat_map(cpus).collect();
    let nodes = nodes(out);
    let (of_vcpus, of_vhost) = (nodes_of(&nodes, &vcpus), nodes_of(&nodes, &served));
    let found = vec![
        setting(
            "vCPUs",
            format!("CPUs {}", cpu_list::list(&vcpus)),
            "Cpus_allowed_list",
        ),
        setting(
            plural(vhost.len(), "vhost thread"),
            format!("CPUs {}", cpu_list::list(&served)),
            "Cpus_allowed_list",
        ),
    ];
    let pinned = !vcpus.is_empty() && vcpus != all;
    let apart = of_vcpus.is_disjoint(&of_vhost) && !of_vhost.is_empty();
    let inside = served.is_subset(&vcpus);
    if pinned && (apart || inside) {
        out.found(ID_VHOST, found, &[]);
    } else {
        out.passed(
            ID_VHOST,
            format!(
                "vCPUs on {}, vhost on {}",
                cpu_list::list(&vcpus),
                cpu_list::list(&served)
            ),
        );
    }
}

fn governor(out: &mut Out<'_>) {
    let host = &out.snapshot.host;
    if host.governors.is_empty() {
        let virtual_machine = host.cpu_flags.iter().any(|f| f == "hypervisor");
        if virtual_machine {
            out.passed(
                ID_GOVERNOR,
                "no cpufreq: a virtual machine, whose host decides",
            );
        } else {
            out.unknown(
                ID_GOVERNOR,
                "no cpufreq in /sys",
                "the firmware's power profile",
            );
        }
        return;
    }
    let driver = host.cpufreq_driver.as_deref().unwrap_or("unknown");
    let list = |map: &BTreeMap<String, u64>| -> String {
        let parts: Vec<String> = map
            .iter()
            .map(|(k, n)| format!("{k} ({})", plural(*n as usize, "CPU")))
            .collect();
        parts.join(", ")
    };
    let text = format!("{}, driver {driver}", list(&host.governors));
    // These drivers choose frequencies themselves; their `powersave` is bounded by the preference.
    let own_choice = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    let saving = |value: &String| matches!(value.as_str(), "power" | "balance_power");
    let slow = match own_choice {
        true => {
            host.energy_preferences.keys().any(saving)
                && !host.governors.contains_key("performance")
        }
        false => host
            .governors
            .keys()
            .any(|g| matches!(g.as_str(), "powersave" | "conservative")),
    };
    if slow {
        let mut found = vec![setting("governor", text, "/sys/devices/system/cpu/cpufreq")];
        if own_choice {
            let preference = list(&host.energy_preferences);
            found.push(setting(
                "energy preference",
                preference,
                "energy_performance_preference",
            ));
        }
        out.found(ID_GOVERNOR, found, &[]);
    } else {
        out.passed(ID_GOVERNOR, text);
    }
}
