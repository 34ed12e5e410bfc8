//! Tables and spans of an import to a trace file.

use std::io::Write;

use wcprof_trace::model::{Span, Tables};
use wcprof_trace::{TraceError, TraceSink, TraceWriter};

use crate::error::{ImportError, Result};

/// Writes a whole trace.
///
/// # Errors
/// When writing fails.
pub(crate) fn write<W: Write>(
    tables: &Tables,
    spans: impl IntoIterator<Item = Span>,
    out: W,
) -> Result<()> {
    let write = || -> Result<(), TraceError> {
        let mut writer = TraceWriter::new(out, &tables.header)?;
        writer.add_tables_once(tables)?;
        for span in spans {
            writer.span(&span)?;
        }
        writer.finish(&tables.stats)?;
        if let Some(symbols) = &tables.names.symbols {
            writer.write_symbols(symbols)?;
        }
        if !tables.names.local.names.frames.is_empty() {
            writer.write_local_names(&tables.names.local)?;
        }
        Ok(())
    };
    write().map_err(ImportError::Write)
}
