//! What other profilers wrote: `perf.data`, folded stacks, the text of uwpmp and gdbpmp.

use std::io::Cursor;

use wcprof_import::{Format, ImportError, NoCode, Options, import, may_be_core};
use wcprof_profile::ProfileBuilder;
use wcprof_trace::model::Tables;
use wcprof_trace::{Ending, TraceReader};

use crate::traces::print;

/// Which format (`u8`) is insisted on, and the text.
pub(crate) fn import_text(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    read(text, text_format(*which), |_, _| {});
}

/// A recording of perf.
pub(crate) fn import_perf(data: &[u8]) {
    read(data, Some(Format::Perf), |_, _| {});
}

/// A core file, packed or not.
pub(crate) fn import_core(data: &[u8]) {
    let mut out = Vec::new();
    let options = Options::default();
    let read = wcprof_import::import_core(Cursor::new(data), &options, &mut NoCode, &mut out);
    assert!(may_be_core(data) || read.is_err());
    profile_of(read, &out, |_, _| {});
}

/// Which format (`u8`) is insisted on, and the file, which is printed in every way.
pub(crate) fn import_views(data: &[u8]) {
    let Some((which, file)) = data.split_first() else {
        return;
    };
    let format = match which % 8 {
        4 => Some(Format::Perf),
        text => text_format(text),
    };
    read(file, format, print);
}

fn text_format(which: u8) -> Option<Format> {
    match which % 8 {
        0 | 4 => None,
        1 => Some(Format::Folded),
        2 => Some(Format::Uwpmp),
        3 => Some(Format::Gdbpmp),
        5 => Some(Format::Dump),
        6 => Some(Format::PtPmp),
        _ => Some(Format::PerfScript),
    }
}

/// Whatever is read must be a trace like any other, from which a profile can be made.
fn read(data: &[u8], format: Option<Format>, and: impl FnOnce(ProfileBuilder, &Tables)) {
    let options = Options {
        format,
        name: "fuzz".to_owned(),
        ..Options::default()
    };
    let mut out = Vec::new();
    let read = import(Cursor::new(data), &options, &mut NoCode, &mut out);
    profile_of(read, &out, and);
}

fn profile_of(
    read: Result<(), ImportError>,
    out: &[u8],
    and: impl FnOnce(ProfileBuilder, &Tables),
) {
    if let Err(error) = read {
        assert!(!error.to_string().is_empty());
        return;
    }
    let trace = TraceReader::from_reader(out).and_then(TraceReader::read_all);
    let (trace, ending) = trace.expect("what was written can be read");
    assert_eq!(ending, Ending::Clean);
    let mut builder = ProfileBuilder::new();
    for span in &trace.spans {
        assert!((span.thread.0 as usize) < trace.tables.threads.len());
        assert!(span.start <= span.end);
        builder.add_span(span);
    }
    and(builder, &trace.tables);
}
