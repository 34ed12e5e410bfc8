//! Foreign files.

use super::some_trace;
use crate::TraceReader;

fn open_error(bytes: &[u8]) -> String {
    match TraceReader::from_reader(bytes) {
        Ok(_) => panic!("not refused"),
        Err(e) => e.to_string(),
    }
}

/// Check that foreign files are named.
#[test]
fn foreign() {
    for (bytes, part) in [
        (&b"PERFILE2________"[..], "perf.data"),
        (b"\x1f\x8b\x08____________", "gzip"),
        (b"\x28\xb5\x2f\xfd____________", "zstd"),
        (b"\x7fELF____________", "ELF"),
        (b"", "empty"),
        (b"#!/bin/sh", "bad header"),
    ] {
        let error = open_error(bytes);
        assert!(error.contains("not a wcprof trace"), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

/// Check that a newer version is refused, naming both versions.
#[test]
fn newer() {
    let (mut bytes, _) = some_trace();
    bytes[8] = 2;
    let error = open_error(&bytes);
    assert!(error.contains("format version 2"), "{error}");
    assert!(error.contains("reads version 1"), "{error}");
}
