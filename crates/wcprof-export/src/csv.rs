//! One line a span (RFC 4180), for spreadsheets and DuckDB: streamed, so that memory does not grow
//! with the trace.
//!
//! A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return would be run as a formula
//! by spreadsheets; such a cell gets a `'` before it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{RowSpan, View};
use wcprof_text::folded_name;

use crate::cells::{Cells, RowCells};

/// Names of the columns.
const COLUMNS: &str = "start_ns,end_ns,weight_ns,samples,pid,process,cgroup,tid,thread,pool,state,syscall,function,module,stack,file,line";

/// Bytes of texts that are remembered: a row has many spans.
const MAX_REMEMBERED: usize = 64 << 20;

/// Writes spans as lines of comma-separated values.
#[derive(Debug)]
pub struct CsvWriter<'p, W> {
    cells: RowCells<'p>,
    texts: Texts,
    out: W,
}

/// By row: what follows the numbers of a span.
#[derive(Debug, Default)]
struct Texts {
    by_row: HashMap<usize, String>,
    n_bytes: usize,
}

impl Texts {
    /// The text of a row, made anew if it is not remembered; `None` where there is none.
    fn of(&mut self, row: usize, make: impl FnOnce() -> Option<String>) -> Option<&str> {
        if !self.by_row.contains_key(&row) {
            let text = make()?;
            if self.n_bytes + text.len() > MAX_REMEMBERED {
                *self = Self::default();
            }
            self.n_bytes += text.len();
            self.by_row.insert(row, text);
        }
        self.by_row.get(&row).map(String::as_str)
    }
}

impl<'p, W: Write> CsvWriter<'p, W> {
    /// Writes the names of the columns.
    pub fn new(profile: &'p Profile, view: &View, mut out: W) -> io::Result<Self> {
        write!(out, "{COLUMNS}\r\n")?;
        Ok(Self {
            cells: RowCells::new(profile, view),
            texts: Texts::default(),
            out,
        })
    }

    /// Writes one span, if the view shows it.
    pub fn add(&mut self, span: RowSpan) -> io::Result<()> {
        let cells = &self.cells;
        let make = || Some(text(&cells.of(span.row)?));
        let Some(text) = self.texts.of(span.row, make) else {
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

    /// Check that texts are made once while there is room, and that they never take more.
    #[test]
    fn remembered() {
        let mut texts = Texts::default();
        let mut n_made = 0;
        for row in (0..100).flat_map(|row| [row, row]).chain([0, 200]) {
            let text = texts.of(row, || {
                n_made += 1;
                (row < 200).then(|| " ".repeat(1 << 20) + &row.to_string())
            });
            let shown = text.map(|text| text.trim_start().parse());
            assert_eq!(shown, (row < 200).then_some(Ok(row)));
            assert!(texts.n_bytes <= MAX_REMEMBERED);
            let held: usize = texts.by_row.values().map(String::len).sum();
            assert_eq!(held, texts.n_bytes);
        }
        assert_eq!(n_made, 100 + 2);
    }

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
