//! Processes of wcprof that give up what they could do, before they touch what others wrote: the one that
//! loads a foreign library (`crypto/sandbox`), and the one that reads symbols and DWARF (`namer`).

pub(crate) mod filter;
mod namer;
pub(crate) mod process;
pub(crate) mod rights;

pub(crate) use namer::{NamerArgs, confinement, run as run_namer, start};
