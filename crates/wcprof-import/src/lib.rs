//! Files of other profilers to traces: `perf.data` and the text of `perf script`, folded stacks, what uwpmp, gdbpmp and pt-pmp
//! print, and dumps of all threads' stacks by debuggers.
//!
//! The trace says where it came from (engine and notes of its header) and what the source lacks. What
//! is read is hostile: sizes are limited ([`limits`]), text that is not understood is
//! counted and noted, and a file of another format is refused by its name ([`ImportError`]).
#![forbid(unsafe_code)]

mod builder;
mod code;
mod confined;
mod core;
mod detect;
mod dump;
mod error;
mod folded;
mod format;
mod identified_file;
mod import;
mod interned;
pub mod limits;
mod options;
mod perf;
mod pmp;
mod pt_pmp;
mod script;
mod snapshots;
mod text;
mod waits;
mod write;

pub use code::{CodeFiles, MachineCode, NoCode, SeenFile, WantedFile, WithVdso, is_running_kernel};
pub use confined::{
    ImportJob, ImportRefusal, InputKind, RefusalKind, import_confined, run_confined_import,
};
pub use core::ThreadStarts;
pub use detect::detect;
pub use error::ImportError;
pub use format::Format;
pub use import::{CORE_HEAD, import, import_core, may_be_core};
pub use options::Options;
pub use waits::GuessedWaits;
