//! Engines: what takes one snapshot of all threads of the target.

mod bpf;
mod procfs;
mod queue_clock;
mod snapshot;

use std::fmt;

pub(crate) use bpf::BpfSnapshots;
pub(crate) use procfs::ProcfsSnapshots;
pub use snapshot::SnapshotError;
#[cfg(test)]
pub(crate) use snapshot::ThreadInfo;
pub(crate) use snapshot::{Comm, InSyscall, SnapshotSet, SnapshotStack, Snapshots, ThreadSnapshot};

/// How the target is observed, best first.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EngineKind {
    /// BPF task iterator and perf events.
    Bpf,
    /// `/proc` and perf events.
    Procfs,
    /// `/proc` alone: running threads have no stack.
    ProcfsOnly,
}

impl EngineKind {
    /// All of them, best first.
    pub const ALL: [Self; 3] = [Self::Bpf, Self::Procfs, Self::ProcfsOnly];

    /// Its name on the command line and in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bpf => "bpf",
            Self::Procfs => "procfs",
            Self::ProcfsOnly => "procfs-only",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
