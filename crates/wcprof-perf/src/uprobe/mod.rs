//! A short burst of breakpoints (uprobes of the kernel) on the update calls of a target's libcrypto,
//! to the length, context, thread and time of each call.
//!
//! The one exception to "no write to the target": the kernel puts a breakpoint instruction into a
//! private copy of the page that holds the function, and takes it out when the event is closed, also
//! when wcprof is killed. No ptrace, nothing left in tracefs. While it is there, a call costs a trap
//! more, on every thread of the process; so callers announce it, and it lasts a fraction of a second.
//!
//! `EVP_EncryptUpdate` and `EVP_DecryptUpdate` are where data passes in all versions of OpenSSL
//! (`crypto/evp/evp_enc.c`): `EVP_CipherUpdate` calls one of them.

mod burst;
mod cost;
mod error;
mod pmu;
mod probe;
mod record;
mod site;

pub use burst::{Burst, BurstEnd, BurstReport, Removal};
pub use cost::{TrapCost, measure_trap_cost};
pub use error::UprobeError;
pub use pmu::UprobePmu;
pub use record::{BurstEvent, UpdateCall, UpdateFunction};
pub use site::{CryptoModule, find_crypto_modules};

/// A record of the ring, for the fuzz target.
pub(crate) fn fuzz_record(bytes: &[u8]) {
    let _ = record::parse(bytes, wcprof_types::Tid(1), |_| {
        Some(UpdateFunction::Encrypt)
    });
}

/// An ELF file, for the fuzz target.
pub(crate) fn fuzz_module(bytes: &[u8]) {
    let _ = site::functions(dwarf_stream::elf::Source::Bytes(bytes.to_vec()));
}

#[cfg(test)]
mod tests;
