//! A report as text for people.

use std::fmt::Write;

use wcprof_findings::{render_finding, render_paragraph};
use wcprof_text::{count, one_line};
use wcprof_types::process_title;
use wcprof_types::snapshot::Snapshot;

use crate::report::Report;
use crate::texts;

/// Files that could not be read that are named; the rest is counted.
const MAX_UNREAD: usize = 8;

/// Prints findings, what is not known, and, with `all`, what passed. Text from the snapshot is escaped.
/// Prose is wrapped at `width` characters, at least 40.
pub fn render_text(snapshot: &Snapshot, report: &Report, width: usize, all: bool) -> String {
    let process = &snapshot.process;
    let mut out = format!(
        "{} (pid {}) on {}, Linux {}\n",
        one_line(&process_title(&process.comm, &process.cmdline)),
        process.pid,
        one_line(&snapshot.host.name),
        one_line(&snapshot.host.kernel),
    );
    for finding in &report.findings {
        out.push('\n');
        out.push_str(&render_finding(finding, width));
    }
    if report.findings.is_empty() {
        out.push_str("\nno findings\n");
    }
    if !report.unknown.is_empty() {
        out.push_str("\nnot known\n");
    }
    for unknown in &report.unknown {
        out.push_str(&render_paragraph(&unknown.check, &unknown.reason, width));
        let next = format!("-> {}", unknown.next);
        out.push_str(&render_paragraph("", &next, width));
    }
    if all && !report.passed.is_empty() {
        out.push_str("\npassed\n");
        for passed in &report.passed {
            out.push_str(&render_paragraph(&passed.check, &passed.seen, width));
        }
    }
    if !snapshot.unread.is_empty() {
        out.push_str("\nnot read\n");
        for unread in snapshot.unread.iter().take(MAX_UNREAD) {
            out.push_str(&render_paragraph(&unread.path, &unread.reason, width));
        }
    }
    let n_more = snapshot.unread.len().saturating_sub(MAX_UNREAD);
    if n_more > 0 {
        let _ = writeln!(out, "  and {n_more} more");
    }
    let hidden = if all { "" } else { " (--all shows them)" };
    let _ = writeln!(
        out,
        "\n{}, {} not known, {} passed{hidden}",
        count(report.findings.len(), "finding"),
        report.unknown.len(),
        report.passed.len(),
    );
    out
}

/// Lists all checks with what they test, and their sources.
pub fn render_list(width: usize) -> String {
    let mut out = String::new();
    for (id, text) in texts::builtin() {
        let _ = writeln!(out, "{id} [{}] {}", text.severity.name(), text.title);
        out.push_str(&render_paragraph("test", &text.test, width));
        for source in &text.sources {
            let line = format!("\"{}\": {}", source.report, source.figure);
            out.push_str(&render_paragraph("source", &line, width));
        }
    }
    out
}
