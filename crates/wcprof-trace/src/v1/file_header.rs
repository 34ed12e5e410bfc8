//! What a trace file begins with: magic and version.

/// The format version that this crate writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// First bytes of a trace.
pub(crate) const MAGIC: [u8; 8] = *b"\x89wcprof\n";

/// Bytes of the file before the first block: magic and version.
pub(crate) const FILE_HEADER_BYTES: usize = 12;
