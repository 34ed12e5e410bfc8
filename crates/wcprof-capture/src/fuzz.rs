//! Bytes to the parsers that are no part of the interface, for the fuzz targets.

use crate::bpf;

/// What a BPF program wrote.
pub fn task_records(bytes: &[u8]) {
    let mut at = 0;
    for (_, stack) in bpf::records(bytes, 0).map_while(Result::ok) {
        assert!(at < stack.start && stack.end <= bytes.len());
        at = stack.end;
    }
}
