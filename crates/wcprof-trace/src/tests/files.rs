//! Files: permissions, existing files, foreign files, names added later.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{final_stats, header, some_trace, symbols};
use crate::TraceSink;
use crate::{Ending, TraceError, TraceReader, TraceWriter, append_symbols};

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

/// Check that names are added to a finished file and to a cut one, and that a damaged file or
/// names of another trace are refused and change nothing.
#[test]
fn append() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.wct");
    let (bytes, whole) = some_trace();
    let names = symbols(2);

    fs::write(&path, &bytes).unwrap();
    append_symbols(&path, &names).unwrap();
    let (trace, ending) = TraceReader::open(&path).unwrap().read_all().unwrap();
    assert_eq!(ending, Ending::Clean);
    assert_eq!(trace.tables.names.symbols, Some(names.clone()));
    assert_eq!(trace.spans, whole.spans);

    // Cut in the last block, which holds the names of before.
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    append_symbols(&path, &names).unwrap();
    let (trace, ending) = TraceReader::open(&path).unwrap().read_all().unwrap();
    assert_eq!(ending, Ending::Clean);
    assert_eq!(trace.tables.names.symbols, Some(names.clone()));

    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let error = append_symbols(&path, &names).unwrap_err();
    assert!(matches!(error, TraceError::DamagedForAppend { .. }));
    assert_eq!(fs::read(&path).unwrap(), damaged);

    fs::write(&path, &bytes).unwrap();
    let error = append_symbols(&path, &symbols(10_000)).unwrap_err();
    assert!(matches!(error, TraceError::Invalid(_)));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
