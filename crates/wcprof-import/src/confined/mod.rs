//! An import in a process that reads the hostile file and can open none: the parent opens files with code.
//!
//! [`import_confined`] starts the process, gives it the file and an empty one for the trace, and answers what it asks for.
//! [`run_confined_import`] is what runs in it. Who starts it confines it, too. The trace that it writes is as hostile as the file.

mod child;
mod messages;
mod parent;

pub use child::run_confined_import;
pub use messages::{ImportRefusal, InputKind, RefusalKind};
pub use parent::{ImportJob, import_confined};

#[cfg(test)]
mod tests;
