//! What was observed of a thread at each tick to weights: nanoseconds of wall-clock time.
//!
//! The kernel counts a thread's run time (`sum_exec_runtime`) and its run-queue delay (`run_delay`)
//! exactly, but updates both only at context switches and scheduler ticks. So a remainder is carried
//! from interval to interval, with its sign. Time that neither explains is blocked time if the thread
//! may have been blocked, else steal or interrupt time. The weights of a thread add up to the time it
//! was observed. Nothing here reads a clock or does I/O.

mod cpu;
mod ledger;
mod observation;
#[cfg(test)]
mod tests;

pub(crate) use ledger::Ledger;
pub(crate) use observation::{Observation, Piece, TimerHit};
