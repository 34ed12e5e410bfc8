//! The ledger against modelled schedules whose truth is known exactly.
//!
//! `model` is what one thread does and what the kernel counts of it, `machine` makes schedules as
//! programs have them on a calm machine, a busy one and one that stands still at times, and `play`
//! gives them to the ledger as the engines do.

mod account;
mod check;
mod machine;
mod model;
mod play;
mod runs;
mod sleeps;

const MS: u64 = 1_000_000;
