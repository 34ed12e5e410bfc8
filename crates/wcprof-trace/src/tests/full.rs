//! A trace that is as large as one may be: the writer stops where the reader would.

use wcprof_types::{Pid, Tid, TimeNs};

use super::{final_stats, header};
use crate::limits::{
    MAX_BLOCK_BYTES, MAX_NAME_BYTES, MAX_TABLE_BYTES, MAX_THREAD_NAMES, STRING_BYTES,
};
use crate::model::{Process, ThreadId, Trace};
use crate::reader::Ending;
use crate::sink::{Room, TraceSink};
use crate::{TraceReader, TraceWriter};

/// A trace with one thread, and the thread.
fn one_thread() -> (TraceWriter<Vec<u8>>, ThreadId) {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let process = Process {
        pid: Pid(1),
        comm: "é".repeat(1 << 15),
        ..Process::default()
    };
    let process = writer.add_process(process).unwrap();
    let thread = writer.add_thread(process, Tid(1), TimeNs(0), "n0");
    (writer, thread.unwrap())
}

fn read(writer: TraceWriter<Vec<u8>>) -> (Trace, Ending) {
    let bytes = writer.into_inner();
    let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
    reader.read_all().unwrap()
}

/// Check that a thread that renames itself all the time has its first names and the last one, and that a long name is
/// cut.
#[test]
fn names_of_a_thread() {
    let (mut writer, thread) = one_thread();
    for i in 1..1000 {
        let name = format!("n{i}");
        writer.thread_name(thread, TimeNs(i), &name).unwrap();
        writer.flush().unwrap();
    }
    writer.finish(&final_stats()).unwrap();
    let tables = read(writer).0.tables;
    let names = &tables.threads[0].names;
    assert_eq!(names.len(), MAX_THREAD_NAMES);
    let first: Vec<_> = names
        .iter()
        .take(2)
        .map(|(at, name)| (at.0, name.as_str()))
        .collect();
    assert_eq!(first, [(0, "n0"), (1, "n1")]);
    assert_eq!(names.last(), Some(&(TimeNs(999), "n999".to_owned())));
    assert_eq!(tables.processes[0].comm, "é".repeat(MAX_NAME_BYTES / 2));
}

/// Check that full tables take nothing more, and that the trace can be ended and read then.
#[test]
fn full_tables() {
    let (mut writer, thread) = one_thread();
    writer.flush().unwrap();
    let both = |has| Room {
        stacks: has,
        waits: has,
    };
    assert_eq!(writer.room(), both(true));
    writer.pretend_packed(MAX_TABLE_BYTES - MAX_BLOCK_BYTES - STRING_BYTES);
    assert_eq!(writer.room(), both(false));
    writer.thread_name(thread, TimeNs(1), "n1").unwrap();
    let full = writer.thread_name(thread, TimeNs(2), "n2").unwrap_err();
    assert!(full.to_string().contains("bytes of tables"), "{full}");
    assert!(writer.add_process(Process::default()).is_err());
    writer.finish(&final_stats()).unwrap();
    let (trace, ending) = read(writer);
    assert_eq!(ending, Ending::Clean);
    assert_eq!(trace.tables.threads[0].name(), "n1");
}
