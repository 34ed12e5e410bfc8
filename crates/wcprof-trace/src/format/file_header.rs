//! What a trace file begins with: magic and version.

/// The format version that this crate writes and reads.
pub const FORMAT_VERSION: u32 = 2;

/// The minor version that this crate writes. Readers take any: what is new in a minor version is skipped.
pub const FORMAT_MINOR: u32 = 0;

/// First bytes of a trace.
pub(crate) const MAGIC: [u8; 8] = *b"\x89wcprof\n";

/// Bytes before the first block.
pub const FILE_HEADER_BYTES: usize = 36;
