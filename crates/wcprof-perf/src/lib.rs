//! The kernel's perf events: timer samples of running threads ([`PerfSampler`]), counts of tracepoints ([`TracepointCounts`]), and
//! short bursts of breakpoints on the update calls of a target's libcrypto ([`uprobe`]).
//!
//! Timers and tracepoints only read. Breakpoints are the one exception to "no write to the target": the user asks for
//! them, and they are verified gone.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "wcprof observes x86-64 Linux processes only: build it for x86_64-unknown-linux-gnu"
);

mod cpus;
mod event;
#[doc(hidden)]
pub mod fuzz;
mod record;
mod ring;
mod timers;
mod tracepoints;
pub mod uprobe;

pub use cpus::{CpuPolicy, isolated_cpus, of_thread, online_cpus};
pub use event::{PerfError, perf_event_open_reaches_kernel};
pub use record::{PerfSample, Record, parse_record};
pub use ring::RING_BYTES;
pub use timers::{PerfMode, PerfOptions, PerfSampler, Timers};
pub use tracepoints::{Tracepoint, TracepointBurst, TracepointCounts};
