//! The BPF engine: one pass of a program over the kernel's tasks gives every thread of the targets,
//! and another program filters per-CPU perf events by process.
//!
//! Where the kernel can, wcprof runs the first program itself; elsewhere it is a task iterator, whose
//! passes cost more. Both write into the same memory.
//!
//! The programs are C (`bpf/wcprof.bpf.c`); their object is in the repository and is relocated
//! against the running kernel's types when loaded, so that neither clang nor kernel headers are
//! needed. Whether the kernel can restrict the iterator to a process is found by trying.

mod btf;
mod engine;
mod error;
mod object;
mod red_zones;
mod shared;
mod sys;

#[cfg(test)]
mod tests;

pub(crate) use engine::{BpfEngine, Features};
pub use error::BpfError;
pub(crate) use shared::{MAX_STACK, Pass, TaskRecord, Want, records};
pub use shared::{MAX_TARGETS, RecordError};
