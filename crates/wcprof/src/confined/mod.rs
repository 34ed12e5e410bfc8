//! Processes of wcprof that give up what they could do, before they touch what others wrote: the one that
//! loads a foreign library (of wcprof-crypto), and the one that reads symbols and DWARF (`namer`).

pub mod filter;
mod namer;
pub mod process;
pub mod rights;

pub use namer::{NamerArgs, run as run_namer};
pub(crate) use namer::{Pace, confinement, start};
