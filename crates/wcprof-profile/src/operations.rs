//! What processes counted, and their time, to what one operation costs: CPU time and waits by pool, CPU time by
//! kind of work.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wcprof_types::CounterValue;

use crate::categories::cpu_of_rows;
use crate::model::{Profile, ProfileProcess, Row, State};
use crate::rules::Categories;
use crate::slices::Slices;

/// Counters of the operations that others ask a program for: the first list of which a process has a counter holds.
/// Each is a kind of operation with its number and the sum of its latencies.
const KINDS: [&[(&str, &str, &str)]; 4] = [
    &[
        ("read", "osd.op_r", "osd.op_r_latency"),
        ("write", "osd.op_w", "osd.op_w_latency"),
        ("read-write", "osd.op_rw", "osd.op_rw_latency"),
    ],
    &[
        ("get", "rgw.get", "rgw.get_initial_lat"),
        ("put", "rgw.put", "rgw.put_initial_lat"),
    ],
    // From Reef on.
    &[
        ("get", "rgw_op.get_obj_ops", "rgw_op.get_obj_lat"),
        ("put", "rgw_op.put_obj_ops", "rgw_op.put_obj_lat"),
        ("delete", "rgw_op.del_obj_ops", "rgw_op.del_obj_lat"),
        ("list", "rgw_op.list_obj_ops", "rgw_op.list_obj_lat"),
    ],
    &[
        ("read", "librbd.rd", "librbd.rd_latency"),
        ("write", "librbd.wr", "librbd.wr_latency"),
        ("discard", "librbd.discard", "librbd.discard_latency"),
        ("flush", "librbd.flush", "librbd.flush_latency"),
    ],
];
/// Counters must cover this much of a recording, else it is not known how many operations it has.
const MIN_COVERED: f64 = 0.8;

/// Operations of one kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OperationKind {
    /// `read`, `write`, ...
    pub name: String,
    /// How many there were in the time of the profile.
    pub n: f64,
    /// Their mean latency, us; unknown where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
}

/// How many operations processes did, by their own count.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// All kinds together.
    pub all: OperationKind,
    /// Operations a second.
    pub per_second: f64,
    /// Kinds of which there were any, the most frequent first.
    pub kinds: Vec<OperationKind>,
    /// All of them by slice of the profile.
    #[serde(skip)]
    pub over_time: Slices,
}

/// What an operation costs, us of all threads together. All the time that is not idle is in one of these.
#[derive(Copy, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// On a CPU, in a guest, too.
    pub cpu_us: f64,
    /// Waiting for a CPU.
    pub cpu_wait_us: f64,
    /// Waiting for a lock.
    pub lock_us: f64,
    /// Waiting for a disk.
    pub disk_us: f64,
    /// Any other wait but for work.
    pub other_us: f64,
}

/// What an operation costs in one pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PoolCost {
    /// The pool's name. Not escaped.
    pub name: String,
    /// What it costs there.
    #[serde(flatten)]
    pub cost: Cost,
}

/// CPU time of an operation in one kind of work.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkCost {
    /// As the rule names it; `None` for what no rule covers.
    pub name: Option<String>,
    /// On a CPU.
    pub cpu_us: f64,
}

/// What one operation costs the processes that do it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PerOperation {
    /// In all pools.
    pub total: Cost,
    /// By pool, the most CPU time first. They add up to `total`.
    pub pools: Vec<PoolCost>,
    /// The CPU time by kind of work, the largest first. They add up to that of `total`.
    pub work: Vec<WorkCost>,
}

impl Cost {
    fn add(&mut self, state: State, us: f64) {
        let sum = match state {
            State::OnCpu | State::Guest | State::VmExit => &mut self.cpu_us,
            State::Runnable | State::StealIrq => &mut self.cpu_wait_us,
            State::Lock => &mut self.lock_us,
            State::Disk => &mut self.disk_us,
            State::Net | State::Throttle | State::Sleep | State::Blocked => &mut self.other_us,
            State::Idle | State::PlaceUnknown | State::Unknown | State::Stopped => return,
        };
        *sum += us;
    }

    /// What both cost.
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us + other.cpu_us,
            cpu_wait_us: self.cpu_wait_us + other.cpu_wait_us,
            lock_us: self.lock_us + other.lock_us,
            disk_us: self.disk_us + other.disk_us,
            other_us: self.other_us + other.other_us,
        }
    }
}

/// Of each class of processes that count their operations, how many there were.
pub fn counted_by_class(profile: &Profile) -> BTreeMap<&str, Counted> {
    let mut classes: BTreeMap<&str, Vec<&ProfileProcess>> = BTreeMap::new();
    for process in &profile.processes {
        classes.entry(&process.class).or_default().push(process);
    }
    let counted = classes.into_iter().filter_map(|(class, processes)| {
        let counted = counted(&processes)?;
        Some((class, counted))
    });
    counted.collect()
}

/// Of processes of one class together; `None` if one of them did not say it for nearly all of its time.
fn counted(processes: &[&ProfileProcess]) -> Option<Counted> {
    let mut sums: BTreeMap<&str, (f64, CounterValue)> = BTreeMap::new();
    let mut per_second = 0.0;
    let mut over_time = Slices::default();
    for process in processes {
        let ProfileProcess {
            counters,
            recorded_ns,
            ..
        } = process;
        let covered = counters.covered_ns as f64;
        if covered <= 0.0 || covered < MIN_COVERED * *recorded_ns as f64 {
            return None;
        }
        let has = |(_, n, _): &(&str, &str, &str)| counters.grown.contains_key(*n);
        // One that had nothing to do.
        let Some(kinds) = KINDS.iter().find(|kinds| kinds.iter().any(has)) else {
            continue;
        };
        for (name, number, latency) in *kinds {
            let value = |name: &str| counters.grown.get(name).copied().unwrap_or_default();
            let n = value(number).count as f64;
            per_second += n * 1e9 / covered;
            let sum = sums.entry(name).or_default();
            let factor = *recorded_ns as f64 / covered;
            sum.0 += n * factor;
            if let Some(slices) = counters.over_time.get(*number) {
                over_time.add_all(slices, factor);
            }
            sum.1 = sum.1.plus(value(latency));
        }
    }
    let kind = |name: &str, n: f64, latency: CounterValue| OperationKind {
        name: name.to_owned(),
        n,
        latency_us: (latency.count > 0)
            .then(|| latency.time_ns as f64 / 1e3 / latency.count as f64),
    };
    let all = sums
        .values()
        .fold((0.0, CounterValue::default()), |all, sum| {
            (all.0 + sum.0, all.1.plus(sum.1))
        });
    let kinds = sums.iter().filter(|(_, (n, _))| *n > 0.0);
    let mut kinds: Vec<_> = kinds
        .map(|(name, (n, latency))| kind(name, *n, *latency))
        .collect();
    kinds.sort_by(|a, b| b.n.total_cmp(&a.n));
    (all.0 > 0.0).then(|| Counted {
        all: kind("all", all.0, all.1),
        per_second,
        kinds,
        over_time,
    })
}

/// What one of `n_ops` operations costs the processes of a class.
pub(crate) fn per_operation(
    profile: &Profile,
    class: &str,
    categories: &Categories,
    n_ops: f64,
) -> PerOperation {
    let is_of_class = |row: &&Row| {
        let process = profile.process_of(&profile.threads[row.thread]);
        process.is_some_and(|process| process.class == class)
    };
    let rows = || profile.rows.iter().filter(is_of_class);
    let us = |weight: u64| weight as f64 / 1e3 / n_ops;
    let mut total = Cost::default();
    let mut pools: BTreeMap<&str, Cost> = BTreeMap::new();
    for row in rows() {
        let pool = &profile.pools[profile.threads[row.thread].pool];
        pools
            .entry(&pool.name)
            .or_default()
            .add(row.state, us(row.weight));
        total.add(row.state, us(row.weight));
    }
    let pools = pools.into_iter().map(|(name, cost)| PoolCost {
        name: name.to_owned(),
        cost,
    });
    let mut pools: Vec<PoolCost> = pools.collect();
    pools.sort_by(|a, b| b.cost.cpu_us.total_cmp(&a.cost.cpu_us));
    let mut work = cpu_of_rows(profile, categories, rows());
    work.sort_by_key(|time| Reverse(time.weight));
    PerOperation {
        total,
        pools,
        work: work
            .into_iter()
            .map(|time| WorkCost {
                cpu_us: us(time.weight),
                name: time.name,
            })
            .collect(),
    }
}
