//! A live process to what is counted of its work: by itself, asked for through a socket that it offers, and by KVM of its
//! virtual machines.
//!
//! A program that is asked answers with a thread of its own: this is the second exception of the invariant that a target does
//! not notice. So it happens only where the user asks for it, with questions from a fixed list that change
//! nothing, and with limits on the answer's size and time.
//!
//! `socket.rs` is the way to any such program; a program's questions and answers have a file of their own.

mod ceph;
mod dump;
mod kvm;
mod socket;

#[cfg(test)]
mod tests;

pub use ceph::CephDaemon;
pub use dump::{Counters, DumpError, parse_dump};
pub use kvm::{KVM_PREFIX, KVM_RUN, KvmStats, has_vm, vcpu_threads};
pub use socket::{MAX_ANSWER, NoAnswer};
