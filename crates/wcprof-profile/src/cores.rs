//! A profile to the cores that its processes keep busy: by class of daemon, by pool, for an operation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Profile;
use crate::operations::{Counted, PerOperation, counted_by_class, per_operation};
use crate::rules::{Categories, Rules};

/// CPU time of all processes of a profile.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cores {
    /// By class, the busiest first.
    pub classes: Vec<ClassCores>,
    /// Cores of all.
    pub cores: f64,
    /// CPU time of an operation, us, of all; only with a number of operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub us_per_op: Option<f64>,
    /// Cores of one class for each core of another.
    pub ratios: Vec<CoresRatio>,
}

/// CPU time of the processes of one class.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClassCores {
    /// The class.
    pub class: String,
    /// Cores kept busy on average over the recording; of processes on several hosts, over each
    /// host's recording.
    pub cores: f64,
    /// CPU time, ns.
    pub on_cpu_ns: u64,
    /// CPU time of an operation, us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub us_per_op: Option<f64>,
    /// Its operations by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Counted>,
    /// What one of its operations costs; with a number of operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_operation: Option<PerOperation>,
    /// Threads.
    pub n_threads: usize,
    /// Its processes, the busiest first.
    pub processes: Vec<ProcessCores>,
    /// Its pools by name, the busiest first.
    pub pools: Vec<PoolCores>,
}

/// CPU time of one process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessCores {
    /// What a user calls it (`osd.3`). Not escaped.
    pub title: String,
    /// Its pid.
    pub pid: i32,
    /// Its host. Not escaped.
    pub host: String,
    /// Cores.
    pub cores: f64,
    /// Threads.
    pub n_threads: usize,
    /// Why its part ended before the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// CPU time of the pools of one name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PoolCores {
    /// The name. Not escaped.
    pub name: String,
    /// Cores.
    pub cores: f64,
    /// Threads.
    pub n_threads: usize,
}

/// Cores of one class for each core of another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CoresRatio {
    /// Whose.
    pub class: String,
    /// In relation to whose.
    pub to: String,
    /// How many.
    pub ratio: f64,
}

/// Adds up the CPU time of a profile. `n_ops`: operations done in that time, else they are those that its processes
/// counted: of one class for all, of several classes for each its own.
pub fn cores(
    profile: &Profile,
    rules: &Rules,
    categories: &Categories,
    n_ops: Option<f64>,
) -> Cores {
    let mut on_cpu = vec![0_u64; profile.threads.len()];
    for row in &profile.rows {
        if row.state.is_running() {
            on_cpu[row.thread] = on_cpu[row.thread].saturating_add(row.weight);
        }
    }
    let mut processes = vec![(0_u64, 0_usize); profile.processes.len()];
    let mut pools: BTreeMap<(&str, &str), PoolCores> = BTreeMap::new();
    for (thread, &ns) in profile.threads.iter().zip(&on_cpu) {
        let Some(process) = profile.process_of(thread) else {
            continue;
        };
        // The stand-in for threads that exited unseen is none.
        let is_thread = usize::from(thread.tid.0 != 0);
        let sum = &mut processes[thread.process];
        *sum = (sum.0.saturating_add(ns), sum.1 + is_thread);
        let name = profile.pools[thread.pool].name.as_str();
        let pool = pools.entry((&process.class, name)).or_default();
        pool.name = name.to_owned();
        pool.cores += share(ns, process.recorded_ns);
        pool.n_threads += is_thread;
    }
    let mut classes: BTreeMap<&str, ClassCores> = BTreeMap::new();
    for (process, (ns, n_threads)) in profile.processes.iter().zip(processes) {
        let cores = share(ns, process.recorded_ns);
        let class = classes.entry(&process.class).or_default();
        class.class.clone_from(&process.class);
        class.cores += cores;
        class.on_cpu_ns = class.on_cpu_ns.saturating_add(ns);
        class.n_threads += n_threads;
        class.processes.push(ProcessCores {
            title: process.title.clone(),
            pid: process.pid.0,
            host: process.host.clone(),
            cores,
            n_threads,
            ended: process.ended.clone(),
        });
    }
    for ((class, _), pool) in pools {
        if let Some(class) = classes.get_mut(class) {
            class.pools.push(pool);
        }
    }
    let mut classes: Vec<ClassCores> = classes.into_values().collect();
    let n_of_all = give_operations(profile, categories, n_ops, &mut classes);
    for class in &mut classes {
        class.processes.sort_by(|a, b| b.cores.total_cmp(&a.cores));
        class.pools.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    }
    classes.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    let all = classes
        .iter()
        .map(|class| class.on_cpu_ns)
        .fold(0, u64::saturating_add);
    let of = |name: &str| classes.iter().find(|c| c.class == name).map(|c| c.cores);
    let ratios = rules.class_ratios().into_iter().filter_map(|(class, to)| {
        let (cores, others) = (of(&class)?, of(&to).filter(|cores| *cores > 0.0)?);
        let ratio = cores / others;
        Some(CoresRatio { class, to, ratio })
    });
    Cores {
        ratios: ratios.collect(),
        cores: classes.iter().map(|c| c.cores).sum(),
        us_per_op: us_per_op(all, n_of_all),
        classes,
    }
}

/// Gives each class its operations and what they cost; the number of operations that holds for all.
fn give_operations(
    profile: &Profile,
    categories: &Categories,
    n_ops: Option<f64>,
    classes: &mut [ClassCores],
) -> Option<f64> {
    let mut counted = counted_by_class(profile);
    let n_ops = n_ops.filter(|n| *n > 0.0);
    let only = counted.values().map(|counted| counted.all.n).next();
    let n_of_all = n_ops.or(only.filter(|_| counted.len() == 1));
    for class in classes {
        class.operations = counted.remove(class.class.as_str());
        let own = class.operations.as_ref().map(|counted| counted.all.n);
        class.us_per_op = us_per_op(class.on_cpu_ns, n_of_all.or(own));
        let n_of_class = n_ops.or(own);
        class.per_operation =
            n_of_class.map(|n| per_operation(profile, &class.class, categories, n));
    }
    n_of_all
}

fn us_per_op(ns: u64, n_ops: Option<f64>) -> Option<f64> {
    Some(ns as f64 / 1000.0 / n_ops?)
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}
