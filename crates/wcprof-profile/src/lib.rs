//! The profile: a symbolized, classified, aggregated trace, and the trees made from it.
//!
//! [`ProfileBuilder`] turns the spans of a trace into a [`Profile`](model::Profile): frames become
//! functions, waits become states by [`Rules`], threads are put into pools. [`Trees`] turns a
//! profile and a [`View`] into call trees. Nothing here does I/O.
#![forbid(unsafe_code)]

mod builder;
mod classify;
mod filter;
mod functions;
mod label;
pub mod model;
mod pools;
mod rules;
mod stacks;
mod syscalls;
mod totals;
mod tree;

pub use builder::{ProfileBuilder, RenamedStacks};
pub use filter::{FilterError, ThreadFilter};
pub use label::Label;
pub use rules::{Rules, RulesError};
pub use syscalls::{syscall_name, syscall_number};
pub use totals::{FunctionWeight, function_weights};
pub use tree::{Direction, Group, GroupBy, GroupKey, Node, Trees, View};
