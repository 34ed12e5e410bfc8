//! Names in a process that reads hostile files and can open none: the parent opens them.
//!
//! [`symbolize_confined`] starts the process, answers what it asks for, and checks what it says.
//! [`run_confined`] is what runs in it. Who starts it confines it, too.

mod child;
mod messages;
mod names;
mod parent;
mod requests;
mod wire;
mod wire_path;

pub use child::run_confined;
pub use messages::Confinement;
pub use parent::{Ended, NamingProcess, StartProcess, confinement, symbolize_confined};

#[cfg(test)]
mod tests;
