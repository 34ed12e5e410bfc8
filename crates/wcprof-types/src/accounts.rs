//! What the kernel has accounted at a moment of a recording, beside the recorded threads' own times: CPUs,
//! pressure, control groups, other processes. Kept as JSON in a trace ([`Accounts`]); two readings give what
//! happened between them.
//!
//! Everything is optional: `None` and empty maps mean not read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, Pressure};
use crate::snapshot::Unread;
use crate::{Pid, Tid};

/// How much a reading holds at most of each.
pub mod limits {
    /// Control groups.
    pub const GROUPS: usize = 512;
    /// Threads whose control groups are read.
    pub const THREADS: usize = 4096;
    /// Sets of threads that have the same groups, CPUs and policy.
    pub const SETS: usize = 1024;
    /// CPUs with figures of their own.
    pub const CPUS: usize = 1024;
    /// Names of other processes.
    pub const OTHERS: usize = 16;
}

/// What the kernel has accounted at a moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Accounts {
    /// Times of all CPUs together (`/proc/stat`).
    pub cpu: Option<CpuTimes>,
    /// The rest, which is read when a recording begins and ends, and when limits of its threads have changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<AccountsDetail>,
}

/// Accounts that take more than one file to read.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountsDetail {
    /// Times of each CPU that is online (`/proc/stat`).
    pub by_cpu: BTreeMap<u32, CpuTimes>,
    /// Stall times of the host by resource: `cpu`, `io`, `memory` (`/proc/pressure`).
    pub pressure: BTreeMap<String, Pressure>,
    /// `kernel.task_delayacct`: delay accounting is on. `None` where the kernel has none.
    pub delay_accounting: Option<bool>,
    /// Control groups of the recorded threads and the groups above them, each once, an inner one before the outer
    /// ones.
    pub groups: Vec<Cgroup>,
    /// Groups beyond those kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_groups: u64,
    /// The recorded threads, together where all of this is equal.
    pub threads: Vec<ThreadSet>,
    /// Threads beyond those read.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_threads: u64,
    /// Processes that are not recorded; nothing of them in a reading for the sake of limits.
    pub others: OtherProcesses,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

/// Times of a CPU, or of all together, by what it did, ns since boot. The kernel counts in ticks of 10 ms.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuTimes {
    /// User code, with guests.
    pub user: u64,
    /// Kernel code.
    pub system: u64,
    /// Nothing to run; a thread that waits for a disk may have run here last.
    pub idle: u64,
    /// Interrupts and their softirqs.
    pub irq: u64,
    /// The hypervisor ran something else.
    pub steal: u64,
}

impl CpuTimes {
    /// What was added since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            irq: self.irq.saturating_sub(earlier.irq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// The sum with another's times.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
            idle: self.idle.saturating_add(other.idle),
            irq: self.irq.saturating_add(other.irq),
            steal: self.steal.saturating_add(other.steal),
        }
    }

    /// All times together.
    pub fn total(&self) -> u64 {
        let parts = [self.user, self.system, self.idle, self.irq, self.steal];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Time of threads and of the kernel's own work for them.
    pub fn busy(&self) -> u64 {
        self.user.saturating_add(self.system)
    }

    /// The idle part of all times, 0 to 1; `None` without any.
    pub fn idle_part(&self) -> Option<f64> {
        match self.total() {
            0 => None,
            total => Some(self.idle as f64 / total as f64),
        }
    }
}

/// Threads of a process with the same control groups, CPUs and scheduling policy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadSet {
    /// The process.
    pub pid: Pid,
    /// The threads.
    pub tids: Vec<Tid>,
    /// Their groups and the ones above, by their places in [`AccountsDetail::groups`].
    pub groups: Vec<u32>,
    /// CPUs they may run on, as a list.
    pub cpus: String,
    /// Their budget, of threads under `SCHED_DEADLINE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineBudget>,
    /// How long they waited for block devices since they began, ns; `None` while delay accounting is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_wait_ns: Option<u64>,
}

/// A budget of `SCHED_DEADLINE` (`sched_getattr(2)`).
#[derive(
    Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub struct DeadlineBudget {
    /// CPU time that a thread may use in each period, ns.
    pub runtime_ns: u64,
    /// Length of a period, ns.
    pub period_ns: u64,
}

/// CPU time of processes that are not recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherProcesses {
    /// The names with most CPU time since the last reading, the most first. Empty in the first reading.
    pub by_name: Vec<OtherProcess>,
    /// Processes whose time was read.
    pub n_read: u64,
    /// Processes that were there and not read: reading them had no more CPU time, or they could not be read.
    pub n_unread: u64,
    /// Processes of other users are not shown to wcprof (the mount option `hidepid` of `/proc`), and not counted here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub are_hidden: bool,
}

impl OtherProcesses {
    /// Whether a reading looked for any.
    pub fn is_read(&self) -> bool {
        self.n_read > 0 || self.n_unread > 0 || !self.by_name.is_empty()
    }
}

/// CPU time of the processes of one name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherProcess {
    /// The name (`comm`); `kworker` for all of the kernel's workers.
    pub name: String,
    /// How many of them used CPU time.
    pub n: u64,
    /// Their CPU time since the last reading, ns.
    pub cpu_ns: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
