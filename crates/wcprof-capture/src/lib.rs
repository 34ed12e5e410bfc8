//! Samples live processes: the state of each thread at each tick, and the stacks that changed.
//!
//! It never stops, signals or writes to a target.
//!
//! # One tick
//!
//! [`Sampler::run`] has a thread of its own and does this 99 times a second:
//!
//! 1. **Targets.** The clock wakes it. Processes that exited or began another program leave the set of
//!    targets; their children, and what another thread found, join it if that is asked for.
//! 2. **Engine.** An engine takes one snapshot of all threads: `engine/bpf.rs` by one run of a BPF iterator
//!    (`bpf/`), `engine/procfs.rs` by reading `/proc`. For each thread it has the state, run time, delay, number
//!    of runs, registers and system call; the BPF engine also copies stacks. Threads that did not run since the
//!    last tick are only counted. A snapshot that nobody needs at once may stay in the kernel for some ticks.
//! 3. **Slots.** Each thread has a slot with its last snapshot. If the thread did not run since, its stack is
//!    the same: the slot counts the tick, and that is all.
//! 4. **Stacks.** For a thread that ran and blocks again, the top of its stack is copied, its wait is named
//!    (system call, file, lock), and its kernel stack is read if that is asked for. Then the number of runs is
//!    read again. A thread that ran meanwhile has a torn copy, which is read again or dropped and counted.
//! 5. **Timer samples.** The rings of perf events (`wcprof-perf`) are drained: stacks of running threads, which
//!    a sampler in user space cannot see. Samples that the kernel lost are counted.
//! 6. **Batch.** All of it is one [`TickBatch`]. Several ticks are sent together through a bounded channel to
//!    the recorder, which unwinds and writes. If the channel is full, the batch is dropped and counted: sampling
//!    never waits.
//! 7. **Budget.** Once a second the CPU time of sampling and recording is compared with its limit, and the rate
//!    is lowered if it is above.
//!
//! The recorder answers with [`SamplerRequest`]s: a thread whose frames reach deeper gets a larger copy, and before what
//! is recorded becomes a file, threads that wait are handed on.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "wcprof observes x86-64 Linux processes only: build it for x86_64-unknown-linux-gnu"
);

mod batch;
mod bpf;
mod engine;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod many_cpus;
#[cfg(test)]
mod old_kernel;
pub mod probe;
mod queue;
mod sampler;
mod sys;
#[cfg(test)]
mod testing;

pub use batch::{
    CpuClock, KernelStack, LockGlance, LockNotes, OwnerGlance, Since, StackBytes, StackCopy,
    TargetEnd, TargetId, ThreadCounters, ThreadTick, TickBatch, TickCounts, TimerSample,
};
pub use bpf::{BpfError, MAX_TARGETS, RecordError};
pub use engine::{EngineKind, SnapshotError};
pub use queue::Queued;
pub use sampler::{
    Arrivals, KeepThread, MAX_MODULE_FILES, MAX_MODULES, Pulse, Sampler, SamplerLinks,
    SamplerOptions, SamplerRequest, SamplingEnd, StackRequest, StartError, Stuck, Watcher,
};
pub use sys::{
    Punctuality, add_lump_cpu, add_recording_cpu, add_steady_cpu, become_punctual, give_way,
    raise_open_files,
};
pub use wcprof_perf::CpuPolicy;
