//! A report as text for people.

use std::fmt::Write;

use indexmap::IndexMap;
use wcprof_findings::{Basis, Finding, render_brief, render_finding, render_paragraph};
use wcprof_text::{count, one_line};
use wcprof_types::process_title;
use wcprof_types::snapshot::Snapshot;

use crate::report::{Report, Unknown};
use crate::texts;

/// Files that could not be read that are named; the rest is counted.
const MAX_UNREAD: usize = 8;

/// Prints the findings of several processes' settings and what is not known, each once, and how much was checked; with
/// `all` each process by itself, with what passed. Text from snapshots is escaped. Prose is wrapped at `width` characters,
/// at least 40.
pub fn render_text(checked: &[(Snapshot, Report)], width: usize, all: bool) -> String {
    if all {
        let texts = checked
            .iter()
            .map(|(snapshot, report)| whole(snapshot, report, width));
        return texts.collect::<Vec<_>>().join("\n");
    }
    let mut findings: IndexMap<_, (&Finding, Vec<&Snapshot>)> = IndexMap::new();
    let mut unknown: IndexMap<&Unknown, Vec<&Snapshot>> = IndexMap::new();
    for (snapshot, report) in checked {
        for finding in &report.findings {
            let settings = match &finding.basis {
                Basis::Setting(found) => found.settings.as_slice(),
                _ => &[],
            };
            let key = (&finding.rule, &finding.title, settings);
            let (_, of) = findings.entry(key).or_insert((finding, Vec::new()));
            of.push(snapshot);
        }
        for open in &report.unknown {
            unknown.entry(open).or_default().push(snapshot);
        }
    }
    let subject = |of: &[&Snapshot]| match checked.len() {
        0 | 1 => String::new(),
        _ => format!("{}: ", subjects(of)),
    };
    let findings = findings.into_values();
    let mut out: String = findings
        .map(|(finding, of)| render_brief(finding, &subject(&of), width))
        .collect();
    for (open, of) in unknown {
        let text = format!(
            "{}{}: {} -> {}",
            subject(&of),
            open.check,
            open.reason,
            open.next
        );
        out += &render_paragraph("unknown", &text, width);
    }
    let sum =
        |of: fn(&Report) -> usize| checked.iter().map(|(_, report)| of(report)).sum::<usize>();
    let of = match checked {
        [(snapshot, _)] => title(snapshot),
        several => format!("{} processes", several.len()),
    };
    let n_unread: usize = checked
        .iter()
        .map(|(snapshot, _)| snapshot.unread.len())
        .sum();
    let unread = match n_unread {
        0 => String::new(),
        n => format!(", {} not read", count(n, "file")),
    };
    let line = format!(
        "settings of {of}: {} checked, {}, {} not known{unread} (--all shows them)",
        sum(|report| report.passed.len() + report.findings.len()),
        count(sum(|report| report.findings.len()), "finding"),
        sum(|report| report.unknown.len()),
    );
    out + &line + "\n"
}

/// `osd.3 (pid 4711) on node1, Linux 6.12`.
fn title(snapshot: &Snapshot) -> String {
    format!(
        "{} on {}, Linux {}",
        subjects(&[snapshot]),
        one_line(&snapshot.host.name),
        one_line(&snapshot.host.kernel),
    )
}

/// Processes that are named.
const MAX_SUBJECTS: usize = 3;

/// `osd.0 (pid 7), osd.1 (pid 8) and 2 more`; of many, how many.
fn subjects(of: &[&Snapshot]) -> String {
    if of.len() > MAX_SUBJECTS {
        return format!("{} processes", of.len());
    }
    let names = of.iter().map(|snapshot| {
        let process = &snapshot.process;
        let title = process_title(&process.comm, &process.cmdline);
        format!("{} (pid {})", one_line(&title), process.pid)
    });
    names.collect::<Vec<_>>().join(", ")
}

/// All that is said of one process.
fn whole(snapshot: &Snapshot, report: &Report, width: usize) -> String {
    let mut out = format!("settings of {}\n", title(snapshot));
    for finding in &report.findings {
        out.push('\n');
        out.push_str(&render_finding(finding, width));
    }
    if !report.unknown.is_empty() {
        out.push_str("\nnot known\n");
    }
    for unknown in &report.unknown {
        out.push_str(&render_paragraph(&unknown.check, &unknown.reason, width));
        let next = format!("-> {}", unknown.next);
        out.push_str(&render_paragraph("", &next, width));
    }
    if !report.passed.is_empty() {
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
    let _ = writeln!(
        out,
        "\nsettings: {} checked, {}, {} not known",
        report.passed.len() + report.findings.len(),
        count(report.findings.len(), "finding"),
        report.unknown.len(),
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
