//! What other profilers wrote: `perf.data`, folded stacks, the text of uwpmp and gdbpmp.

use std::io::Cursor;

use wcprof_import::{Format, Options, import};
use wcprof_profile::ProfileBuilder;
use wcprof_trace::model::Tables;

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
    let trace = match import(Cursor::new(data), &options) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut builder = ProfileBuilder::new();
    for span in &trace.spans {
        assert!((span.thread.0 as usize) < trace.tables.threads.len());
        assert!(span.start <= span.end);
        builder.add_span(span);
    }
    and(builder, &trace.tables);
}
