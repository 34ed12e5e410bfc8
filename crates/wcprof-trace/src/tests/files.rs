//! Foreign files, and files of later versions.

use wcprof_types::{Avma, FdKind, StackEnd, ThreadState};
use zstd::bulk::Compressor;

use super::hostile::{numbers, sections, table};
use super::some_trace;
use crate::format::block::{self, kind};
use crate::format::wire::put_str;
use crate::format::{FILE_HEADER_BYTES, FileHeader, section};
use crate::model::{Frame, StackId, Stats};
use crate::{Ending, TraceReader, TraceSink, TraceWriter};

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

/// Check that a newer version is refused, naming both versions, and so is a trace that asks for what is not here.
#[test]
fn newer() {
    let (mut bytes, _) = some_trace();
    bytes[8] = 3;
    let error = open_error(&bytes);
    assert!(error.contains("format version 3"), "{error}");
    assert!(error.contains("reads version 2"), "{error}");
    let header = FileHeader {
        required: 1 << 40,
        ..FileHeader::CURRENT
    };
    bytes.splice(..FILE_HEADER_BYTES, header.to_bytes());
    let error = open_error(&bytes);
    assert!(error.contains("bits 0x10000000000"), "{error}");
}

/// Check that what a newer minor version adds is skipped and counted: features, fields, entries, sections,
/// columns, blocks and codes.
#[test]
fn future_minor_version() {
    let header = FileHeader {
        minor: 7,
        optional: u64::MAX,
        ..FileHeader::CURRENT
    };
    let mut thread = numbers(&[0, 2, 0]);
    put_str(&mut thread, "x");
    // An end, a kind of file and a state with codes from a later time, a column more than there are now.
    let wait = numbers(&[0, 0, 78, 1, 47, 0]);
    let mut spans = numbers(&[1, 0, 0, 9, 1]);
    let flags = 7 | 1 << 3 | 1 << 4 | 1 << 6;
    let columns = [flags, 0, -1, -1, 0, 2, 0, 0, 5];
    for column in columns {
        match u64::try_from(column) {
            Ok(number) => spans.extend(numbers(&[1, number])),
            Err(_) => spans.push(0),
        }
    }
    let raw = sections(&[
        (section::PROCESSES, table(&[&[2, 0, 0, 99, 99]])),
        (section::THREADS, table(&[&thread])),
        (section::FRAMES, table(&[&[2, 1], &[9, 1, 2, 3]])),
        (section::NODES, table(&[&[0, 1]])),
        (section::STACKS, table(&[&[1, 77]])),
        (section::WAITS, table(&[&wait])),
        (section::LOCKS, vec![3, 200, 1, 1]),
        (section::COUNTERS, vec![1, 200]),
        (250, vec![1, 2, 3]),
        (section::SPANS, spans),
    ]);
    let mut file = header.to_bytes();
    let zstd = &mut Compressor::new(1).unwrap();
    block::pack(zstd, (kind::TABLES, (0, 0)), &raw, &mut file).unwrap();
    block::pack(zstd, (99, (0, 0)), &raw, &mut file).unwrap();
    let reader = TraceReader::from_reader(file.as_slice()).unwrap();
    let (trace, ending) = reader.read_all().unwrap();
    assert_eq!(ending, Ending::Unfinished);
    let t = &trace.tables;
    assert_eq!(t.frames, [Frame::Unmapped(Avma(1)), Frame::Unknown(9)]);
    assert_eq!(t.stacks[0].end, StackEnd::Other(77));
    let fd = t.waits[0].fd.as_ref().unwrap();
    assert_eq!((fd.kind, fd.path.as_str()), (FdKind::Other(77), "/"));
    assert_eq!(trace.spans[0].state, ThreadState::Other(7));
    assert_eq!(trace.spans[0].stack, Some(StackId(0)));
    // Process, frame, two facts, section, state, column, block; and the end and the kind of file.
    assert_eq!(t.origins.unread.n_unknown, 10);

    // Written again, they keep their codes.
    let mut writer = TraceWriter::new(Vec::new(), &super::header()).unwrap();
    writer.add_tables(t).unwrap();
    writer.span(&trace.spans[0]).unwrap();
    writer.finish(&Stats::default()).unwrap();
    let bytes = writer.into_inner();
    let (again, _) = TraceReader::from_reader(bytes.as_slice())
        .and_then(TraceReader::read_all)
        .unwrap();
    assert_eq!(again.tables.frames, t.frames);
    assert_eq!(again.tables.stacks, t.stacks);
    assert_eq!(again.tables.waits, t.waits);
    assert_eq!(again.spans[0].state, ThreadState::Other(7));
}

/// Check that tables which are added without being remembered have the same ids.
#[test]
fn added_once() {
    let tables = some_trace().1.tables;
    let mut writer = TraceWriter::new(Vec::new(), &tables.header).unwrap();
    writer.add_tables_once(&tables).unwrap();
    writer.finish(&Stats::default()).unwrap();
    let bytes = writer.into_inner();
    let (again, _) = TraceReader::from_reader(bytes.as_slice())
        .and_then(TraceReader::read_all)
        .unwrap();
    assert!(!tables.stacks.is_empty());
    assert_eq!(again.tables.frames, tables.frames);
    assert_eq!(again.tables.nodes, tables.nodes);
    assert_eq!(again.tables.stacks, tables.stacks);
    assert_eq!(again.tables.waits, tables.waits);
}
