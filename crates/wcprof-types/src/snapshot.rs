//! A snapshot of how a process and its host are set up: what `wcprof doctor` judges. Read once,
//! kept as JSON in a trace or a file of its own.
//!
//! Everything is optional: `None` and empty lists mean not read, and [`Snapshot::unread`] says why
//! where that is known. Secrets are gone ([`crate::redact_args`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::{Pid, Tid};

/// Value of [`Snapshot::schema`].
pub const SNAPSHOT_SCHEMA: &str = "wcprof-snapshot";
/// Value of [`Snapshot::version`]. Keys are added without a new version; a key that is removed or
/// changes its meaning gives a new one.
pub const SNAPSHOT_VERSION: u32 = 1;

/// How much a snapshot holds at most of each.
pub mod limits {
    /// Bytes of a command line; the kernel's own limit is a few MiB.
    pub const CMDLINE: usize = 1 << 20;
    /// Arguments.
    pub const ARGS: usize = 4096;
    /// Bytes of an argument, and of the value of an environment variable.
    pub const ARG: usize = 16 << 10;
    /// Threads. Each takes 30 us of CPU time when a recording starts.
    pub const THREADS: usize = 1024;
    /// Libraries.
    pub const LIBRARIES: usize = 1024;
    /// Open files.
    pub const FILES: usize = 64;
    /// Block devices.
    pub const DEVICES: usize = 64;
    /// Network devices.
    pub const NICS: usize = 32;
    /// Interrupts of a device.
    pub const IRQS: usize = 256;
    /// NUMA nodes, as many as Linux knows on x86-64 (`CONFIG_NODES_SHIFT`).
    pub const NODES: usize = 1024;
    /// Files that could not be read.
    pub const UNREAD: usize = 64;
}

/// How a process and its host are set up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// [`SNAPSHOT_SCHEMA`].
    pub schema: String,
    /// [`SNAPSHOT_VERSION`].
    pub version: u32,
    /// Version of wcprof that read it.
    pub wcprof_version: String,
    /// When it was read, ns since 1970 (UTC).
    pub taken_unix_ns: u64,
    /// The process.
    pub process: ProcessSetup,
    /// The host.
    pub host: HostSetup,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
}

/// A file that could not be read, or only in part.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unread {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// How a process is set up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSetup {
    /// Its pid where it was read.
    pub pid: Pid,
    /// `/proc/PID/comm`.
    pub comm: String,
    /// Its arguments, without secrets.
    pub cmdline: Vec<String>,
    /// The command line was longer than what is kept.
    #[serde(skip_serializing_if = "is_false")]
    pub cmdline_cut: bool,
    /// Environment variables of an allow-list; `None` when they could not be read.
    pub environ: Option<BTreeMap<String, String>>,
    /// Mapped programs and libraries, by address; `None` when they could not be read.
    pub libraries: Option<Vec<Library>>,
    /// Whose `malloc` the process calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malloc: Option<Malloc>,
    /// Lines of `/proc/PID/status` that matter, as text without the key.
    pub status: BTreeMap<String, String>,
    /// Sums of `/proc/PID/smaps_rollup`, KiB.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rollup_kib: BTreeMap<String, u64>,
    /// Threads, by tid.
    pub threads: Vec<ThreadSetup>,
    /// Threads beyond those kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_threads: u64,
    /// Kernel threads that serve its virtual devices (`vhost-PID`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vhost: Vec<ThreadSetup>,
    /// Open files.
    pub fds: Option<OpenFiles>,
    /// Control groups of its threads with a limit or a count, and the ones above, each once; an inner one before the
    /// outer ones.
    pub cgroups: Vec<Cgroup>,
    /// Control groups beyond those kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub n_more_cgroups: u64,
    /// Its memory by NUMA node; `None` where there is one node, or when it was not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaMemory>,
    /// `/proc/PID/ksm_merging_pages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ksm_merging_pages: Option<u64>,
    /// Ceph's settings, when it is a part of Ceph or maps librados.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceph: Option<CephSetup>,
}

/// A mapped file with code.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// Its path in the process's mount namespace.
    pub path: String,
    /// It was deleted or replaced since.
    #[serde(skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// Version text found inside it (libcrypto, libceph-common).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Library {
    /// Last component of the path.
    pub fn file_name(&self) -> &str {
        crate::file_name(&self.path)
    }
}

/// Whose `malloc` a module's calls reach, by the dynamic linker's table in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Malloc {
    /// The module that calls.
    pub caller: String,
    /// The module that is called.
    pub provider: String,
}

/// A thread's place.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadSetup {
    /// Its id.
    pub tid: Tid,
    /// Its name.
    pub comm: String,
    /// CPUs it may run on, as a list (`0-3,8`).
    pub cpus: String,
    /// What stops it, by [`StopCause::name`](crate::StopCause::name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// CPU it ran on last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cpu: Option<u32>,
    /// Its control groups and the ones above, by their places in [`ProcessSetup::cgroups`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u32>,
}

/// Descriptors, counted, and the files that tell something.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenFiles {
    /// Descriptors.
    pub n: u64,
    /// Soft limit of descriptors.
    pub limit: Option<u64>,
    /// Anonymous files by name (`kvm-vm`, `[io_uring]`), and how many.
    pub anonymous: BTreeMap<String, u64>,
    /// Block devices, and regular files open for writing.
    pub files: Vec<OpenFile>,
}

/// An open file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OpenFile {
    /// Its path.
    pub path: String,
    /// Name of the block device that it is or lies on; empty when not known.
    pub device: String,
    /// It is a block device itself.
    pub is_device: bool,
}

/// Memory by NUMA node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NumaMemory {
    /// Bytes on each node.
    pub bytes: BTreeMap<u32, u64>,
    /// The file it was read from.
    pub source: String,
}

/// What is known of a Ceph process's settings.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CephSetup {
    /// Its configuration file; empty when none was found.
    pub conf_path: String,
    /// Options of that file that count for this process, by name with `_`; sections resolved.
    pub conf: BTreeMap<String, String>,
    /// Links in the OSD's data folder (`block`, `block.db`, `block.wal`).
    pub links: BTreeMap<String, String>,
}

/// How a host is set up.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSetup {
    /// Its name.
    pub name: String,
    /// `uname -r`.
    pub kernel: String,
    /// CPUs online, as a list.
    pub cpus: String,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// Features of the first CPU that matter to wcprof's advice.
    pub cpu_flags: Vec<String>,
    /// NUMA nodes.
    pub nodes: Vec<NumaNode>,
    /// cpufreq driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpufreq_driver: Option<String>,
    /// CPUs by governor.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub governors: BTreeMap<String, u64>,
    /// CPUs by energy performance preference.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub energy_preferences: BTreeMap<String, u64>,
    /// Files of `/sys/kernel/mm/ksm`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ksm: BTreeMap<String, String>,
    /// Files of `/sys/kernel/mm/transparent_hugepage`, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub thp: BTreeMap<String, String>,
    /// Reserved huge pages, by page size.
    pub huge_pages: Vec<HugePages>,
    /// `MemTotal`, KiB.
    pub memory_kib: Option<u64>,
    /// Block devices under the process's files, with what they are made of.
    pub devices: Vec<BlockDevice>,
    /// Network devices with hardware below them that are up.
    pub nics: Vec<Nic>,
    /// Delay accounting (`kernel.task_delayacct`) is on; `None` where the kernel has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_accounting: Option<bool>,
    /// Stall times can be read (`/proc/pressure`): a kernel that does not account them has no such folder, or files that cannot be
    /// read. `None`: not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<bool>,
    /// irqbalance runs; `None` when the processes could not be listed.
    pub irqbalance: Option<bool>,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs, as a list; empty for memory alone.
    pub cpus: String,
}

/// Huge pages of one size.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HugePages {
    /// Size of a page, KiB.
    pub size_kib: u64,
    /// Pages reserved.
    pub total: u64,
    /// Pages of these that nothing uses.
    pub free: u64,
}

/// A block device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockDevice {
    /// Name of the whole disk, or of the device that is made of others.
    pub name: String,
    /// Devices that it is made of (`dm-0`, `md0`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Its `queue/rotational`.
    pub rotational: Option<bool>,
    /// Its `device/model`; virtual disks have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its `queue/scheduler`, as text (`[none] mq-deadline`).
    pub scheduler: Option<String>,
    /// NUMA node of the hardware; negative: none.
    pub numa_node: Option<i32>,
    /// Interrupts of the hardware.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub irqs: Vec<Irq>,
}

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// NUMA node of the hardware; negative: none.
    pub numa_node: Option<i32>,
    /// Interrupts of the hardware.
    pub irqs: Vec<Irq>,
}

/// An interrupt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Irq {
    /// Its number.
    pub number: u32,
    /// CPUs that get it, as a list.
    pub cpus: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}
