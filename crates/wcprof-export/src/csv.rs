//! One line a span (RFC 4180), for spreadsheets and DuckDB: streamed, so that memory does not grow
//! with the trace.
//!
//! A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return would be run as a formula
//! by spreadsheets; such a cell gets a `'` before it.

use std::borrow::Cow;
use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{RowSpan, View};
use wcprof_text::folded_name;

use crate::cells::{Cells, RowCells};

/// Names of the columns.
const COLUMNS: &str = "start_ns,end_ns,weight_ns,samples,pid,process,cgroup,tid,thread,pool,state,syscall,function,module,stack,file,line";

/// Writes spans as lines of comma-separated values.
#[derive(Debug)]
pub struct CsvWriter<W> {
    /// By row: what follows the numbers of a span; `None` when the view does not show it.
    rows: Vec<Option<String>>,
    out: W,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the names of the columns.
    pub fn new(profile: &Profile, view: &View, mut out: W) -> io::Result<Self> {
        let cells = RowCells::new(profile, view);
        let rows = (0..profile.rows.len()).map(|row| Some(text(&cells.of(row)?)));
        let rows = rows.collect();
        write!(out, "{COLUMNS}\r\n")?;
        Ok(Self { rows, out })
    }

    /// Writes one span, if the view shows it.
    pub fn add(&mut self, span: RowSpan) -> io::Result<()> {
        let Some(Some(text)) = self.rows.get(span.row) else {
            return Ok(());
        };
        write!(
            self.out,
            "{},{},{},{},{text}\r\n",
            span.start, span.end, span.weight, span.n_samples
        )
    }

    /// Ends the text.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// What follows the numbers of a span.
fn text(cells: &Cells<'_>) -> String {
    let names: Vec<_> = cells.stack.iter().map(|name| folded_name(name)).collect();
    let line = cells.source.as_ref().map(|(_, line)| *line);
    let line = line.filter(|line| *line > 0).map(|line| line.to_string());
    let texts: [&str; 13] = [
        &cells.thread.pid.to_string(),
        &cells.thread.process,
        &cells.thread.cgroup,
        &cells.thread.tid.to_string(),
        &cells.thread.name,
        &cells.thread.pool,
        cells.state,
        &cells.syscall,
        &cells.function,
        &cells.module,
        &names.join(";"),
        cells.source.as_ref().map_or("", |(file, _)| file),
        &line.unwrap_or_default(),
    ];
    texts.map(cell).join(",")
}

/// A text as one cell.
fn cell(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let start = if is_formula { "'" } else { "" };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{start}{}\"", text.replace('"', "\"\"")).into(),
        false if is_formula => format!("'{text}").into(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check quoting, and that no cell is a formula.
    #[test]
    fn cells() {
        assert_eq!(cell("f(int)"), "f(int)");
        assert_eq!(cell("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("@f,g"), "\"'@f,g\"");
        assert_eq!(cell("a\r\nb"), "\"a\r\nb\"");
    }
}
