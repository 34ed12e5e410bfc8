//! Address spaces and module identity.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub u64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

address! {
    /// Actual virtual memory address: in the target's address space.
    Avma
}
address! {
    /// Stated virtual memory address: as written in the ELF file (what `addr2line` takes).
    Svma
}
address! {
    /// Byte position in a file, as in `/proc/PID/maps`; not an [`Svma`].
    FileOffset
}
address! {
    /// Offset from the module's base: the page-aligned [`Svma`] of its first `PT_LOAD` segment
    /// (zero for PIE and shared libraries, usually 0x400000 for others).
    RelativeAddress
}

/// AVMA − SVMA of a module, modulo 2^64.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LoadBias(pub u64);

impl LoadBias {
    /// The address in the file of an address in the target.
    pub fn to_svma(self, avma: Avma) -> Svma {
        Svma(avma.0.wrapping_sub(self.0))
    }

    /// The address in the target of an address in the file.
    pub fn to_avma(self, svma: Svma) -> Avma {
        Avma(svma.0.wrapping_add(self.0))
    }
}

/// What a frame's address means: where execution is, or where a call returns to.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FrameAddress<A> {
    /// Where execution is: the leaf frame, or a frame interrupted by a signal.
    InstructionPointer(A),
    /// The instruction after a call.
    ReturnAddress(A),
}

impl FrameAddress<Avma> {
    /// The address to look up: inside the call instruction for a return address, since the
    /// next instruction may belong to another line, inline frame or (after a `noreturn` call)
    /// another function.
    pub fn for_lookup(self) -> Avma {
        match self {
            Self::InstructionPointer(a) => a,
            Self::ReturnAddress(a) => Avma(a.0.saturating_sub(1)),
        }
    }
}

/// The GNU build-id note of an ELF file (`NT_GNU_BUILD_ID`), 1 to 64 bytes; prints as hex.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct BuildId(Vec<u8>);

impl TryFrom<Vec<u8>> for BuildId {
    type Error = &'static str;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Self::Error> {
        Self::new(&bytes).ok_or("no build-id")
    }
}

impl From<BuildId> for Vec<u8> {
    fn from(build_id: BuildId) -> Self {
        build_id.0
    }
}

impl BuildId {
    /// `None` when `bytes` is empty or longer than 64 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=64)
            .contains(&bytes.len())
            .then(|| Self(bytes.to_vec()))
    }

    /// The note's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a return address is looked up inside its call, an instruction pointer as is.
    #[test]
    fn lookup_address() {
        assert_eq!(
            FrameAddress::ReturnAddress(Avma(0x1005)).for_lookup(),
            Avma(0x1004)
        );
        assert_eq!(
            FrameAddress::InstructionPointer(Avma(0x1005)).for_lookup(),
            Avma(0x1005)
        );
    }

    /// Check that a load bias below zero (prelinked high, loaded low) wraps both ways.
    #[test]
    fn negative_bias() {
        let bias = LoadBias(0x1000_u64.wrapping_sub(0x40_0000));
        assert_eq!(bias.to_svma(Avma(0x1234)), Svma(0x40_0234));
        assert_eq!(bias.to_avma(Svma(0x40_0234)), Avma(0x1234));
    }

    /// Check that a build-id prints as hex, and that none is empty.
    #[test]
    fn build_id_hex() {
        let id = BuildId::new(&[0, 0xff, 0x10]).unwrap();
        assert_eq!(id.to_string(), "00ff10");
        assert_eq!(BuildId::new(&[]), None);
    }
}
