//! Bytes to the parsers that are no part of the interface, for the fuzz targets.

use crate::uprobe;

/// A record of the ring of a breakpoint.
pub fn uprobe_record(bytes: &[u8]) {
    uprobe::fuzz_record(bytes);
}

/// The ELF file of a target's libcrypto.
pub fn crypto_module(bytes: &[u8]) {
    uprobe::fuzz_module(bytes);
}
