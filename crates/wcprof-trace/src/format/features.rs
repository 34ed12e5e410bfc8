//! The header of a file, with what a reader must understand, as bytes and back.

use super::file_header::{FILE_HEADER_BYTES, FORMAT_MINOR, FORMAT_VERSION, MAGIC};
use super::wire::{u32_at, u64_at};
use crate::error::TraceError;

/// The header of a trace file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    pub(crate) minor: u32,
    /// What a reader must know to read the file right, a bit each; none has a meaning so far.
    pub(crate) required: u64,
    /// What a reader may know.
    pub(crate) optional: u64,
}

impl FileHeader {
    /// That of a trace that is written now.
    pub(crate) const CURRENT: Self = Self {
        minor: FORMAT_MINOR,
        required: 0,
        optional: 0,
    };

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT_VERSION.to_le_bytes());
        out.extend(self.minor.to_le_bytes());
        out.extend(self.required.to_le_bytes());
        out.extend(self.optional.to_le_bytes());
        let crc = crc32fast::hash(&out);
        out.extend(crc.to_le_bytes());
        out
    }

    /// Refuses what is damaged, and what asks for more than this reader knows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let bytes: &[u8; FILE_HEADER_BYTES] = bytes.try_into().map_err(|_| TraceError::Empty)?;
        let header = Self {
            minor: u32_at(bytes, 12),
            required: u64_at(bytes, 16),
            optional: u64_at(bytes, 24),
        };
        if crc32fast::hash(&bytes[..32]) != u32_at(bytes, 32) {
            return Err(TraceError::DamagedAtBeginning(0));
        }
        match header.required {
            0 => Ok(header),
            required => Err(TraceError::Features(required)),
        }
    }
}
