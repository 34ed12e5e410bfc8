//! Processes of wcprof that give up what they could do, before they touch what others wrote: the one that
//! loads a foreign library (of wcprof-crypto), and the one that reads symbols and DWARF, or a
//! file to import (`reader`).

pub mod filter;
pub mod process;
mod reader;
pub mod rights;

pub(crate) use reader::{ConfinedWork, Pace, confinement, start};
pub use reader::{ReaderArgs, run_importer, run_namer};
