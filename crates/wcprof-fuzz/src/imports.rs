//! What other profilers wrote: `perf.data`, folded stacks, the text of uwpmp and gdbpmp.

use std::io::Cursor;

use wcprof_import::{Format, Options, import};
use wcprof_profile::ProfileBuilder;

use crate::traces::print;

/// Which format (`u8`) is insisted on, and the text.
pub(crate) fn import_text(data: &[u8]) {
    let Some((which, text)) = data.split_first() else {
        return;
    };
    read(
        text,
        match which % 4 {
            0 => None,
            1 => Some(Format::Folded),
            2 => Some(Format::Uwpmp),
            _ => Some(Format::Gdbpmp),
        },
    );
}

/// A recording of perf.
pub(crate) fn import_perf(data: &[u8]) {
    read(data, Some(Format::Perf));
}

/// Whatever is read must be a trace like any other.
fn read(data: &[u8], format: Option<Format>) {
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
    print(builder, &trace.tables);
}
