//! Files: permissions, existing files, foreign files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{final_stats, header, some_trace};
use crate::TraceSink;
use crate::{Ending, TraceError, TraceReader, TraceWriter};

fn open_error(bytes: &[u8]) -> String {
    match TraceReader::from_reader(bytes) {
        Ok(_) => panic!("not refused"),
        Err(e) => e.to_string(),
    }
}

/// Check that a new file and an existing one are private, and that old content is gone.
#[test]
fn private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wct");
    for _ in 0..2 {
        let mut writer = TraceWriter::create(&path, &header()).unwrap();
        writer.finish(&final_stats()).unwrap();
        drop(writer);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let (trace, ending) = TraceReader::open(&path).unwrap().read_all().unwrap();
        assert_eq!(ending, Ending::Clean);
        assert_eq!(trace.tables.stats, final_stats());
        fs::write(&path, [b'x'; 10_000]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }
}

/// Check that what is no regular file, cannot be created, or is in use is refused.
#[test]
fn refused_outputs() {
    let header = header();
    let error = |path: &Path| TraceWriter::create(path, &header).unwrap_err();
    assert!(matches!(
        error(Path::new("/dev/null")),
        TraceError::NotRegular { .. }
    ));
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no/a.wct");
    assert!(matches!(error(&missing), TraceError::Create { .. }));
    assert!(matches!(error(dir.path()), TraceError::Create { .. }));
    let path = dir.path().join("a.wct");
    let first = TraceWriter::create(&path, &header).unwrap();
    assert!(matches!(error(&path), TraceError::Busy { .. }));
    assert!(fs::metadata(&path).unwrap().len() > 0);
    drop(first);
    TraceWriter::create(&path, &header).unwrap();
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
