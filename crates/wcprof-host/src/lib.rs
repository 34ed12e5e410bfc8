//! What a Linux host says about its processes: `/proc` and `/sys` to targets, mappings, open files, waits,
//! memory and settings.
//!
//! Nothing here stops, signals or writes to a process. Everything that a process may choose (paths, names,
//! memory) is taken to be hostile.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "wcprof observes x86-64 Linux processes only: build it for x86_64-unknown-linux-gnu"
);

mod apart;
pub mod cache;
pub mod clock;
pub mod counters;
mod deadline;
pub mod fds;
pub mod front;
pub mod left;
mod memory;
pub mod open;
pub mod own_files;

pub mod procfs;
mod scheduling;
pub mod select;
mod setup;
mod sockets;
pub mod sys;
mod target;

pub use apart::apart;
pub use deadline::{new_silences, read_in_time, while_wanted, work_cpu_ns};
pub use memory::{read_memory, read_memory_now, readable_address};
pub use setup::{
    AccountsReader, CephFacts, MAX_WALK_KIB, SetupError, Walk, ceph_facts, read_setup,
};
pub use sockets::SocketNames;
pub use target::{Liveness, Target, TargetError};
