//! The profile: a symbolized, classified, aggregated trace, and the trees made from it.
//!
//! [`ProfileBuilder`] turns the spans of a trace into a [`Profile`](model::Profile): frames become
//! functions, waits become states by [`Rules`], threads are put into pools. [`Trees`] turns a
//! profile and a [`View`] into call trees whose weights have confidence intervals ([`Estimator`]).
//! Nothing here does I/O.
#![forbid(unsafe_code)]

mod accounts;
mod builder;
mod by_thread;
mod categories;
mod classify;
mod cores;
mod counters;
mod deadlocks;
pub mod diff;
mod filter;
mod fleet;
mod functions;
mod guests;
mod held;
mod index;
mod label;
mod locks;
pub mod model;
mod name_set;
mod operations;
mod own;
mod places;
mod pools;
mod precision;
mod prepared;
mod processes;
mod renamed;
mod renamed_functions;
mod rows;
mod rules;
mod rust_path;
mod short;
mod slices;
mod span_rows;
mod spread;
mod stacks;
mod student;
mod subjects;
mod sums;
mod syscalls;
mod totals;
mod tree;
mod view;
mod weight_sum;
mod window;

pub use accounts::{
    AccountsChange, GroupChange, GroupFate, HostAccounts, accounts_changes, latest_change,
};
pub use builder::ProfileBuilder;
pub use categories::{CategoryTime, NOT_SAMPLED, cpu_by_category};
pub use cores::{ClassCores, Cores, CoresRatio, PoolCores, ProcessCores, cores};
pub use counters::ProcessCounters;
pub use deadlocks::last_looks;
pub use filter::{FilterError, FunctionFilter, ThreadFilter, globs, keep_threads};
pub use fleet::{Figure, Fleet, Member, fleets};
pub use guests::{VmExits, vm_exits};
pub use label::{Label, file_text};
pub use locks::LockTimes;
pub use model::KERNEL;
pub use name_set::NameSet;
pub use operations::{
    Cost, Counted, OperationKind, PerOperation, PoolCost, WorkCost, counted_by_class,
};
pub use own::OwnFunctions;
pub use places::{is_runtime, waits_in};
pub use pools::without_numbers;
pub use precision::{Course, Estimator, Interval};
pub use prepared::{for_each_shown, shows_any};
pub use renamed::RenamedStacks;
pub use renamed_functions::rename_functions;
pub use rules::{Categories, Rules, RulesError};
pub use short::short;
pub use span_rows::{RowSpan, SpanRows};
pub use spread::{Deviation, Estimate, Spread};
pub use student::{two_sided_p, two_sided_quantile};
pub use subjects::{Subject, Subjects};
pub use syscalls::{syscall_name, syscall_number};
pub use totals::{FunctionGroup, FunctionWeight, function_groups};
pub use tree::{Group, GroupKey, Node, Trees};
pub use view::{Around, Direction, FunctionName, GroupBy, Relation, View};
