//! OpenSSL's version number to its parts.

/// A version of OpenSSL, ordered: major, minor and patch number. The last is the fix number of 1.1.1, without
/// its letter.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VersionNumber(pub u8, pub u8, pub u8);

impl VersionNumber {
    /// From `OpenSSL_version_num`: `0xMNN00PP0` since 3.0, `0xMNNFFPPS` before.
    pub fn from_number(number: u64) -> Self {
        let byte = |shift: u32| ((number >> shift) & 0xff) as u8;
        let major = ((number >> 28) & 0xf) as u8;
        let patch = if major >= 3 { byte(4) } else { byte(12) };
        Self(major, byte(20), patch)
    }
}
