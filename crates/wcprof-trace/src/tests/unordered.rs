//! Spans on all CPUs: what the other ways to read find.

use std::sync::Mutex;

use super::{Recording, header, some_steps, some_trace};
use crate::model::{Span, Tables};
use crate::{Ending, TraceError, TraceReader, TraceWriter};

type Read = Result<(Tables, Vec<Span>, Ending), TraceError>;

fn sorted(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| format!("{span:?}"));
    spans
}

fn in_order(bytes: &[u8]) -> Read {
    let (trace, ending) = TraceReader::from_reader(bytes)?.read_all()?;
    Ok((trace.tables, sorted(trace.spans), ending))
}

fn in_no_order(bytes: &[u8]) -> Read {
    let found = Mutex::new(Vec::new());
    let each = |spans: &[Span]| found.lock().unwrap().extend_from_slice(spans);
    let reader = TraceReader::from_reader(bytes)?;
    let (tables, ending, skipped) = reader.read_unordered(|_| false, each)?;
    assert!(!skipped);
    Ok((tables, sorted(found.into_inner().unwrap()), ending))
}

/// Check that the same spans, tables and ending are found, and errors where the other way finds one: of a whole file,
/// one without a clean end, and ones that are cut or damaged anywhere.
#[test]
fn as_in_order() {
    let (bytes, _) = some_trace();
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    some_steps().iter().for_each(|step| recording.step(step));
    let unfinished = recording.writer.into_inner();
    let mut files = vec![bytes.clone(), unfinished];
    files.extend((0..bytes.len()).step_by(37).map(|n| bytes[..n].to_vec()));
    files.extend((0..bytes.len()).step_by(11).map(|at| {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        damaged
    }));
    let mut n_read = 0;
    for (at, file) in files.iter().enumerate() {
        match (in_order(file), in_no_order(file)) {
            (Ok(expected), Ok(found)) => {
                assert_eq!(found, expected, "{at}");
                n_read += 1;
            }
            (Err(expected), Err(found)) => {
                assert_eq!(found.to_string(), expected.to_string(), "{at}");
            }
            (expected, found) => panic!("{at}: {:?}, {:?}", expected.err(), found.err()),
        }
    }
    assert!(n_read > 50);
}
