//! The vocabulary that every stage of wcprof shares: identifiers, address spaces, thread states.
//!
//! Plain data only: no I/O, no policy. An address carries its space in its type, so that an
//! address in the target ([`Avma`]), one in an ELF file ([`Svma`]) and an offset in that file
//! ([`FileOffset`]) cannot be mixed up.
#![forbid(unsafe_code)]

pub mod accounts;
mod address;
pub mod cgroup;
mod codes;
mod command_line;
mod container;
mod counters;
mod cpu_list;
pub mod jit_files;
pub mod lock;
mod mapping;
mod redact;
mod sample;
pub mod snapshot;
mod state;

pub use address::{Avma, BuildId, FileOffset, FrameAddress, LoadBias, RelativeAddress, Svma};
pub use command_line::{
    ceph_daemon, daemon_kind, option_value, osd_id, process_title, program_name, qemu_options,
    rewritten_title, vm_name,
};
pub use container::{Container, ceph_fsid};
pub use counters::{CounterName, CounterValue};
pub use cpu_list::{cpu_list, parse_cpus};
pub use mapping::{Mapping, MapsError, VDSO, file_name, parse_maps, parse_maps_line, undeleted};
pub use redact::{REDACTED, anonymous_args, keeps_ceph_option, redact_args, redact_variable};
pub use sample::{FdKind, FdTarget, RED_ZONE, ScratchRegs, StopCause, UserRegs, Wait};
pub use state::{Sched, StackEnd, ThreadState};

use serde::{Deserialize, Serialize};

/// Process id (the kernel's tgid), as numbered in wcprof's own pid namespace.
#[derive(
    Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Pid(pub i32);

/// Thread id (the kernel's pid), as numbered in wcprof's own pid namespace.
#[derive(
    Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tid(pub i32);

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC` since the recording began.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TimeNs(pub u64);
