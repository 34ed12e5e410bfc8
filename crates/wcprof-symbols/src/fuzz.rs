//! Bytes to the parsers that are no part of the interface, for the fuzz targets.

use crate::cache;

/// A cache file behind its identity; its checksum is made right.
pub fn names_cache(bytes: &[u8]) {
    cache::fuzz_decode(bytes);
}
