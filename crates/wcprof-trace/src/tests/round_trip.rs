//! What is written is what is read.

use proptest::prelude::*;

use super::{Recording, Step, final_stats, header, some_trace, symbols};
use crate::TraceSink;
use crate::model::{SymbolTable, Trace};
use crate::{Ending, TraceError, TraceReader, TraceWriter};

fn read(bytes: &[u8]) -> (Trace, Ending) {
    TraceReader::from_reader(bytes).unwrap().read_all().unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    (any::<u8>(), any::<u64>(), any::<u64>(), "[a-z/é]{0,6}")
}

proptest! {
    /// Check that any recording, in blocks of any size, is read as it was written.
    #[test]
    fn any_recording(steps in prop::collection::vec(step(), 0..200)) {
        let writer = TraceWriter::new(Vec::new(), &header()).unwrap();
        let mut recording = Recording::new(writer);
        for step in &steps {
            recording.step(step);
        }
        recording.writer.finish(&final_stats()).unwrap();
        let mut expected = recording.expected;
        expected.tables.stats = final_stats();
        expected.spans.sort_by_key(|span| span.end);
        let (found, ending) = read(&recording.writer.into_inner());
        prop_assert_eq!(found, expected);
        prop_assert_eq!(ending, Ending::Clean);
    }

    /// Check that no bytes make the reader panic, be they alone or behind a valid beginning.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = TraceReader::from_reader(bytes.as_slice()).map(TraceReader::read_all);
        let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
        writer.flush().unwrap();
        let mut file = writer.into_inner();
        file.extend_from_slice(&bytes);
        let _ = TraceReader::from_reader(file.as_slice()).map(TraceReader::read_all);
    }
}

/// Check that the time of the beginning can be set until the first block is written, not later.
#[test]
fn beginning() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    writer.set_start(7);
    writer.flush().unwrap();
    writer.set_start(8);
    writer.finish(&final_stats()).unwrap();
    let (trace, _) = read(&writer.into_inner());
    assert_eq!(trace.tables.header.started_unix_ns, 7);
}

/// Check a trace that fills every table, with names.
#[test]
fn every_table() {
    let (bytes, expected) = some_trace();
    let t = &expected.tables;
    let sizes = [
        t.processes.len(),
        t.modules.len(),
        t.threads.len(),
        t.frames.len(),
        t.nodes.len(),
        t.stacks.len(),
        t.waits.len(),
        expected.spans.len(),
        t.origins.setups.len(),
        t.origins.counters.readings.len(),
    ];
    assert!(sizes.iter().all(|&n| n > 0), "{sizes:?}");
    assert_eq!(read(&bytes), (expected, Ending::Clean));
}

/// Check that the tables hold what a span refers to at the moment it is handed over.
#[test]
fn streaming() {
    let (bytes, expected) = some_trace();
    let mut spans = Vec::new();
    let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
    assert_eq!(*reader.header(), header());
    let (tables, _) = reader
        .read(|tables, span| {
            assert!((span.thread.0 as usize) < tables.threads.len());
            assert!(
                span.stack
                    .is_none_or(|s| (s.0 as usize) < tables.stacks.len())
            );
            spans.push(span);
        })
        .unwrap();
    spans.sort_by_key(|span| span.end);
    assert_eq!(Trace { tables, spans }, expected);
}

/// Check that names written later replace the ones before, also by fewer.
#[test]
fn symbols_replaced() {
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    for i in 0..20 {
        recording.step(&(5, 0, i, String::new()));
    }
    recording.writer.write_symbols(&symbols(20)).unwrap();
    recording.writer.finish(&final_stats()).unwrap();
    recording.writer.write_symbols(&symbols(3)).unwrap();
    let found = read(&recording.writer.into_inner()).0.tables.names.symbols;
    assert_eq!(found, Some(symbols(3)));
}

/// Check that a table of names that takes several sections is whole.
#[test]
fn many_symbols() {
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    let mut names = SymbolTable::default();
    for i in 0..200 {
        let frame = crate::model::Frame::Unmapped(wcprof_types::Avma(i));
        let id = recording.writer.intern_frame(frame).unwrap();
        let mut functions = symbols(1).frames.into_values().next().unwrap();
        functions[0].name = format!("{i}").repeat(20_000);
        functions[0].file = None;
        names.frames.insert(id, functions);
    }
    assert!(crate::format::symbols::sections(&names).len() > 1);
    recording.writer.write_symbols(&names).unwrap();
    let found = read(&recording.writer.into_inner()).0.tables.names.symbols;
    assert!(found == Some(names));
}

/// Check that after the end nothing but names is taken.
#[test]
fn finished() {
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    recording.step(&(0, 1, 1, "osd".into()));
    recording.writer.finish(&final_stats()).unwrap();
    let late = recording.writer.set_stats(&final_stats());
    assert!(matches!(late, Err(TraceError::Finished)));
    let frame = crate::model::Frame::Kernel("x".into());
    let late = recording.writer.intern_frame(frame);
    assert!(matches!(late, Err(TraceError::Finished)));
    assert_eq!(read(&recording.writer.into_inner()).1, Ending::Clean);
}
