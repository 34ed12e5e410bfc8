//! Turns registers, stack bytes and the call frame information of modules into a stack: frame
//! addresses, leaf first, and the reason why there are no more of them.
//!
//! Nothing here knows a live process: [`ModuleCode`] reads an ELF file, [`Unwinder`] reads stack memory through [`StackMemory`] and, to check guesses, code through
//! [`TextMemory`]. ELF files and stacks are hostile input: sizes are capped, offsets checked,
//! expressions bounded.
//!
//! A wrong frame is worse than a truncated stack: wherever a step would be a guess it is either
//! checked and counted ([`UnwoundStack::n_guessed`]) or not taken.
#![forbid(unsafe_code)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("wcprof unwinds x86-64 stacks only; build it for an x86_64 target");

mod call;
mod code;
mod error;
mod go;
mod go_step;
mod guess;
mod index;
mod loads;
mod memory;
mod row;
mod shared;
mod step_cache;
mod unwinder;
mod walk;

pub use code::{DebugFrames, ModuleCode};
pub use error::CodeError;
pub use loads::Loads;
pub use memory::{ReadError, SplicedStack, StackCopy, StackMemory, TextMemory};
pub use shared::SharedModules;
pub use unwinder::{ModuleKey, Unwinder};
pub use walk::{MAX_FRAMES, UnwoundFrame, UnwoundStack};
