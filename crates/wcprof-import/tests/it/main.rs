//! Files of other profilers.
#![forbid(unsafe_code)]

mod dumps;
mod perf;
mod text;

use std::io::Cursor;

use wcprof_import::{CodeFiles, ImportError, NoCode, Options};
use wcprof_trace::model::Trace;
use wcprof_trace::{Ending, TraceReader};

/// What is read of the trace that an import writes; no file with code is there.
fn import(bytes: impl AsRef<[u8]>, options: &Options) -> Result<Trace, ImportError> {
    import_with(bytes, options, &mut NoCode)
}

/// The same where `code` has files with code.
fn import_with(
    bytes: impl AsRef<[u8]>,
    options: &Options,
    code: &mut dyn CodeFiles,
) -> Result<Trace, ImportError> {
    let mut out = Vec::new();
    let source = Cursor::new(bytes.as_ref());
    wcprof_import::import(source, options, code, &mut out)?;
    let read = TraceReader::from_reader(out.as_slice()).and_then(TraceReader::read_all);
    let (trace, ending) = read.expect("what was written can be read");
    assert_eq!(ending, Ending::Clean);
    Ok(trace)
}
