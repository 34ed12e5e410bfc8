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
        writer.write_names(&tables.names)
    };
    write().map_err(ImportError::Write)
}
