//! OpenSSL's version number to its parts.

use std::fmt;

/// A version of OpenSSL, ordered.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionNumber {
    /// 3 of 3.0.22.
    pub major: u8,
    /// 0 of 3.0.22.
    pub minor: u8,
    /// 22 of 3.0.22; the fix number of 1.1.1, without its letter.
    pub patch: u8,
}

impl VersionNumber {
    /// From its parts.
    pub const fn new(major: u8, minor: u8, patch: u8) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// From `OpenSSL_version_num`: `0xMNN00PP0` since 3.0, `0xMNNFFPPS` before.
    pub fn from_number(number: u64) -> Self {
        let byte = |shift: u32| ((number >> shift) & 0xff) as u8;
        let major = ((number >> 28) & 0xf) as u8;
        let patch = if major >= 3 { byte(4) } else { byte(12) };
        Self::new(major, byte(20), patch)
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
