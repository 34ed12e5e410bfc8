//! Bytes to the parsers that are no part of the interface, for the fuzz targets.

use crate::{bpf, uprobe};

/// A record of the ring of a breakpoint.
pub fn uprobe_record(bytes: &[u8]) {
    uprobe::fuzz_record(bytes);
}

/// What a BPF program wrote.
pub fn task_records(bytes: &[u8]) {
    let mut at = 0;
    for (_, stack) in bpf::records(bytes, 0).map_while(Result::ok) {
        assert!(at < stack.start && stack.end <= bytes.len());
        at = stack.end;
    }
}

/// The ELF file of a target's libcrypto.
pub fn crypto_module(bytes: &[u8]) {
    uprobe::fuzz_module(bytes);
}
