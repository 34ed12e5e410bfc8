//! Bytes of a uprobe's perf record -> an update call. Pure.
//!
//! Layout of `PERF_RECORD_SAMPLE` (perf_event_open(2)): identifier, pid and tid, time, then the three
//! registers that were asked for, in the order of `asm/perf_regs.h`. At the entry of
//! `EVP_*Update(ctx, out, outl, in, inl)` these are `si` = out, `di` = ctx, `r8` = inl (System V ABI).

use perf_event_open_sys::bindings;
use wcprof_types::Tid;

use crate::record::{Raw, parse_raw};

/// Registers in a sample.
pub(super) const REGS: u64 = (1 << bindings::PERF_REG_X86_SI)
    | (1 << bindings::PERF_REG_X86_DI)
    | (1 << bindings::PERF_REG_X86_R8);

/// The function that was called.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum UpdateFunction {
    /// `EVP_EncryptUpdate`.
    Encrypt,
    /// `EVP_DecryptUpdate`.
    Decrypt,
}

impl UpdateFunction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Encrypt, Self::Decrypt];

    /// The symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Encrypt => "EVP_EncryptUpdate",
            Self::Decrypt => "EVP_DecryptUpdate",
        }
    }
}

/// An update call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UpdateCall {
    /// Which function.
    pub function: UpdateFunction,
    /// Address of the `EVP_CIPHER_CTX`: one for each connection and direction, while that lives.
    pub context: u64,
    /// `inl` as passed: bytes; below 0 is the caller's mistake.
    pub len: i32,
    /// No output: additional authenticated data, not payload.
    pub is_aad: bool,
    /// The calling thread.
    pub tid: Tid,
    /// `CLOCK_MONOTONIC`, ns.
    pub time: u64,
}

/// What the kernel reported of a thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BurstEvent {
    /// A call.
    Call(UpdateCall),
    /// So many calls of this thread were lost here.
    Lost(Tid, u64),
}

/// A record as it is in a ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Parsed {
    /// A call, or lost ones.
    Event(BurstEvent),
    /// Any other kind.
    Other,
}

/// Parses a record of the ring of `owner`, with its header; `function` knows what an event's identifier
/// stands for. `None` when it is malformed.
pub(super) fn parse(
    bytes: &[u8],
    owner: Tid,
    function: impl Fn(u64) -> Option<UpdateFunction>,
) -> Option<Parsed> {
    let mut reader = match parse_raw(bytes)? {
        Raw::Sample(_, reader) => reader,
        Raw::Lost(n) => return Some(Parsed::Event(BurstEvent::Lost(owner, n))),
        Raw::Other => return Some(Parsed::Other),
    };
    let id = reader.u64()?;
    let _pid = reader.u32()?;
    let tid = Tid(reader.u32()? as i32);
    let time = reader.u64()?;
    // No registers: a kernel thread, which calls no libcrypto.
    if reader.u64()? == u64::from(bindings::PERF_SAMPLE_REGS_ABI_NONE) {
        return None;
    }
    let (si, di, r8) = (reader.u64()?, reader.u64()?, reader.u64()?);
    Some(Parsed::Event(BurstEvent::Call(UpdateCall {
        function: function(id)?,
        context: di,
        // `inl` is an int: the upper half of the register is rubbish.
        len: r8 as i32,
        is_aad: si == 0,
        tid,
        time,
    })))
}
