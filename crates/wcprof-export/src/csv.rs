//! One line a span (RFC 4180), for spreadsheets and DuckDB: streamed, so that memory does not grow
//! with the trace.
//!
//! A cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return would be run as a formula
//! by spreadsheets; such a cell gets a `'` before it.

use std::borrow::Cow;
use std::io::{self, Write};

use wcprof_profile::model::{Profile, Row};
use wcprof_profile::{Label, RowSpan, View, syscall_name};
use wcprof_text::folded_name;

use crate::stacks::{Frame, Stacks};

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
        let stacks = Stacks::new(profile, view);
        let rows = profile
            .rows
            .iter()
            .enumerate()
            .map(|(at, row)| Some(text(profile, row, &stacks, &stacks.frames(at)?)))
            .collect();
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
fn text(profile: &Profile, row: &Row, stacks: &Stacks<'_>, frames: &[Frame]) -> String {
    let Some(thread) = profile.threads.get(row.thread) else {
        return String::new();
    };
    let wait = row.wait.and_then(|wait| profile.waits.get(wait as usize));
    let syscall = match wait.and_then(|wait| wait.syscall) {
        Some(n) => syscall_name(n).map_or_else(|| n.to_string().into(), Cow::from),
        None => Cow::from(""),
    };
    // What follows the innermost function is the state.
    let is_function = |f: &&Frame| matches!(f, Frame::Label(Label::Function(_)));
    let leaf = frames.iter().rfind(is_function).copied();
    let image = leaf.and_then(|leaf| stacks.image(leaf));
    let source = leaf.and_then(|leaf| stacks.source(leaf));
    let line = source
        .as_ref()
        .map(|(_, line)| *line)
        .filter(|line| *line > 0);
    let name = |frame: &Frame| folded_name(&stacks.text(*frame)).into_owned();
    let names: Vec<String> = frames.iter().map(name).collect();
    let text = stacks.thread_text(thread);
    let cells = [
        thread.pid.to_string().into(),
        text.process,
        text.cgroup,
        thread.tid.to_string().into(),
        text.name,
        text.pool,
        row.state.name().into(),
        syscall,
        leaf.map_or(Cow::Borrowed(""), |leaf| stacks.text(leaf)),
        image.map_or(Cow::Borrowed(""), |image| stacks.image_text(image).name),
        names.join(";").into(),
        source.map_or(Cow::Borrowed(""), |(file, _)| file),
        line.map_or_else(String::new, |line| line.to_string())
            .into(),
    ];
    let cells: Vec<Cow<'_, str>> = cells.iter().map(|text| cell(text)).collect();
    cells.join(",")
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
