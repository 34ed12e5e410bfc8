//! A control group: its limits, what the kernel counts of it, and how long its tasks stalled. In snapshots of settings and in
//! readings of the kernel's accounts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A control group: its limits, and what the kernel has counted since the group was made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// Its path in its hierarchy.
    pub path: String,
    /// Controllers of a hierarchy of version 1 (`cpu,cpuacct`); empty: version 2.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hierarchy: String,
    /// Inode of its folder: another group of this path has another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// CPU time a period, us; `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_us: Option<u64>,
    /// Length of a period, us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<u64>,
    /// Periods counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_periods: Option<u64>,
    /// Periods in which it was throttled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_throttled: Option<u64>,
    /// Time throttled, us, added up over CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<u64>,
    /// Bytes above which its threads are held up (`memory.high`); `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<u64>,
    /// Times that this limit held a thread up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_memory_high: Option<u64>,
    /// Bytes that it may have (`memory.max`, `memory.limit_in_bytes`); `None` without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// Times that it needed memory at this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_memory_max: Option<u64>,
    /// CPUs it may use, as a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Limits of block devices, by number (`8:0`); those without a limit are absent.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub io_limits: BTreeMap<String, BlockIo>,
    /// What it did with the block devices that have a limit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub io: BTreeMap<String, BlockIo>,
    /// Stall times of its tasks by resource: `cpu`, `io`, `memory`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pressure: BTreeMap<String, Pressure>,
}

impl Cgroup {
    /// Its name and limits, without what the kernel counts.
    pub fn without_counts(&self) -> Self {
        Self {
            n_periods: None,
            n_throttled: None,
            throttled_us: None,
            n_memory_high: None,
            n_memory_max: None,
            io: BTreeMap::new(),
            pressure: BTreeMap::new(),
            ..self.clone()
        }
    }
}

/// Bytes and operations of a block device: done, or allowed a second.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockIo {
    /// Bytes read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
    /// Reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
    /// Writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<u64>,
}

/// How long tasks stalled for a resource, us (`Documentation/accounting/psi.rst`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Some task waited.
    pub some_us: u64,
    /// All tasks that had something to do waited.
    pub full_us: u64,
}

impl Pressure {
    /// What was added since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            some_us: self.some_us.saturating_sub(earlier.some_us),
            full_us: self.full_us.saturating_sub(earlier.full_us),
        }
    }
}
