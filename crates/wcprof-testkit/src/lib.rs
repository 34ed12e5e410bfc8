//! Shared by live tests: building and running targets, running wcprof, reading its output, and whether the
//! machine stood still meanwhile.
#![forbid(unsafe_code)]

mod build;
mod docs;
mod engines;
mod folded;
mod go;
mod golden;
mod load;
mod machine;
mod names;
pub mod pprof;
mod proc;
mod remote;
mod samples;
mod share;
mod skip;
mod store;
mod wcprof;

pub use build::{Variant, build_tiny32, fixture, output_folder};
pub use docs::{DocCommand, doc_commands};
pub use engines::usable;
pub use folded::{Folded, is_function};
pub use go::GoBuild;
pub use golden::golden;
pub use load::alone;
pub use machine::Verdict;
pub use names::HOSTILE_NAMES;
pub use proc::{
    CpuLog, CpuTime, PATIENCE, StopWatch, children, run_delay_ns, thread_capabilities, thread_ids,
    voluntary_switches, wait_for_epoll, wait_for_run_time, wait_for_thread, wait_until,
};
pub use remote::{Mark, RemoteProcess, copy_program};
pub use samples::{Samples, Split};
pub use share::{assert_share, assert_within, tolerance};
pub use skip::{has_capability, skip};
pub use store::{Reply, StoreRequest, StoreRules, StoredProfile, TestStore};
pub use wcprof::{
    Attach, Engine, Recording, assert_fails, assert_weights, interrupt, kill_worker, printed,
    program, read_trace, stood_still, text, trace_in, wait_for_a_second, wait_for_trace,
    wait_for_write, wcprof, worker,
};
