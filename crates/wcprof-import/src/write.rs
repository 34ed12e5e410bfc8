//! A trace in memory to a trace file.

use std::io::Write;

use wcprof_trace::model::Trace;
use wcprof_trace::{TraceError, TraceSink, TraceWriter};

/// Writes a whole trace. The writer must be new: ids are those of the trace.
///
/// # Errors
/// When writing fails.
pub fn write<W: Write>(trace: &Trace, writer: &mut TraceWriter<W>) -> Result<(), TraceError> {
    let tables = &trace.tables;
    writer.add_tables(tables)?;
    for span in &trace.spans {
        writer.span(span)?;
    }
    writer.finish(&tables.stats)?;
    if let Some(symbols) = &tables.names.symbols {
        writer.write_symbols(symbols)?;
    }
    if !tables.names.local.names.frames.is_empty() {
        writer.write_local_names(&tables.names.local)?;
    }
    Ok(())
}
