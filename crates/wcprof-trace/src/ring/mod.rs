//! The most recent time of a recording, in memory: spans in packed chunks of about a second, tables of
//! what these refer to, and nothing else.
//!
//! [`Ring`] takes the place of a [`TraceWriter`](crate::TraceWriter) while a recording runs. What is
//! older than the time it keeps is dropped. So are interned stacks, frames and waits, ended threads and
//! ended processes that nothing in it refers to any more; their ids are then used again. A
//! [`Snapshot`] is a copy of what it holds at a moment; a [`Cut`] of it is an ordinary trace.

mod chunk;
mod counts;
mod cut;
mod memory;
mod modules;
mod sink;
mod snapshot;
mod table;
mod tables;
#[cfg(test)]
mod tests;

pub use cut::Cut;
pub use memory::{RingMemory, RingOptions};
pub use sink::Ring;
pub use snapshot::Snapshot;
