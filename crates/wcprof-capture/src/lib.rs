//! Observes live processes: snapshots of their threads, copies of their stacks, timer samples.
//!
//! It never stops, signals or writes to a target.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "wcprof observes x86-64 Linux processes only: build it for x86_64-unknown-linux-gnu"
);

pub mod bpf;
mod engine;
#[doc(hidden)]
pub mod fuzz;
pub mod probe;
mod sampler;
mod sys;
mod tid_map;

pub use engine::{EngineKind, SnapshotError};
pub use sampler::{
    KeepThread, KernelStack, LockGlance, OwnerGlance, Sampler, SamplerLinks, SamplerOptions,
    SamplingEnd, Since, StackBytes, StackCopy, StackRequest, StartError, TargetEnd, TargetId,
    ThreadTick, TickBatch, TickCounts, TimerSample,
};
pub use sys::{Punctuality, add_recording_cpu};
