//! Bytes to the parsers that are no part of the interface, for the fuzz targets.

use crate::bpf;

/// What the task iterator wrote.
pub fn task_records(bytes: &[u8]) {
    bpf::fuzz_records(bytes);
}
