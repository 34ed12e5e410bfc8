//! Observes a live process: snapshots of its threads, copies of their stacks, timer samples.
//!
//! The only crate that knows a live process, and the only one of the profiler with `unsafe`. It
//! never stops, signals or writes to the target, but for the breakpoints of [`uprobe`], which the user
//! asks for.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "wcprof observes x86-64 Linux processes only: build it for x86_64-unknown-linux-gnu"
);

mod batch;
mod bpf;
mod engine;
mod fds;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod memory;
mod opener;
pub mod perf;
pub mod probe;
pub mod procfs;
mod sampler;
pub mod select;
mod setup;
mod sockets;
mod sys;
mod target;
mod tid_map;
pub mod uprobe;

pub use batch::{
    KernelStack, LockGlance, OwnerGlance, Since, StackBytes, StackCopy, TargetEnd, TargetId,
    ThreadCounters, ThreadTick, TickBatch, TickCounts, TimerSample,
};
pub use bpf::{BpfError, MAX_TARGETS, RecordError};
pub use engine::{EngineKind, SnapshotError};
pub use files::{HeldFile, LiveFileError, LiveFiles, REMOTE_TIMEOUT};
pub use memory::{ReadRange, read_memory, read_ranges};
pub use sampler::{
    KeepThread, Sampler, SamplerLinks, SamplerOptions, SamplingEnd, StackRequest, StartError,
};
pub use setup::{MAX_WALK_KIB, SetupError, read_setup};
pub use sockets::SocketNames;
pub use sys::{Punctuality, add_recording_cpu, monotonic_ns, own_cpu_ns, thread_cpu_ns};
pub use target::{Liveness, Target, TargetError, read_status};
