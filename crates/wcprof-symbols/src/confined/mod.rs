//! Names in a process that reads hostile files and can open none: the parent opens them.
//!
//! [`symbolize_confined`] starts the process, answers what it asks for, and checks what it says.
//! [`run_confined`] is what runs in it. Who starts it confines it, too.

mod child;
mod messages;
mod names;
mod parent;
mod process;
mod requests;
pub mod wire;
mod wire_path;

pub use child::{OnFile, run_confined, tell_size};
pub use messages::Confinement;
pub use parent::symbolize_confined;
pub use process::{ConfinedProcess, Ended, ProcessWatch, StartProcess, begin, confinement};
pub use requests::{code_from_server, elf_file, in_memory};

#[cfg(test)]
mod tests;
