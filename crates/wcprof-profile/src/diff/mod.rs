//! Two profiles to what changed from one to the other, and how sure that is.
//!
//! [`diff`] adds up both profiles by daemon class, pool, function and stack, matches the lines by
//! name, and tests each change against how the weights varied within the recordings. How, and what
//! that means, is in `docs/diff.md`. Nothing here does I/O.

mod class;
mod compare;
mod model;
mod sums;
mod warnings;

pub use class::daemon_class;
pub use compare::diff;
pub use model::{
    Change, DiffOptions, Line, LineName, ProfileDiff, Side, StackPair, Table, TableKind, Unit,
    Value, Warning,
};
