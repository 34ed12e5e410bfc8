//! The result as aligned lines to read: verdict, name, what was found, and below it the advice.

use std::fmt::Write;

use wcprof_capture::probe::{Probe, ProbeLine, Subject, Verdict};
use wcprof_text::{terminal_name, wrap};

use crate::terminal::Terminal;

/// Columns before the detail: indent, verdict, name.
const VERDICT_WIDTH: usize = 9;
/// Narrower columns would be a ladder of words.
const MIN_PROSE: usize = 30;

pub(super) fn render(probe: &Probe, terminal: Terminal) -> String {
    let mut out = String::new();
    let names = probe.lines.iter().map(|line| line.name.len());
    let name_width = names.max().unwrap_or(0) + 2;
    let indent = 2 + VERDICT_WIDTH + name_width;
    let width = terminal.prose_width().saturating_sub(indent).max(MIN_PROSE);
    let mut subject = None;
    for line in &probe.lines {
        if subject != Some(line.subject) {
            if subject.is_some() {
                out.push('\n');
            }
            subject = Some(line.subject);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", title(line.subject, probe));
        }
        let verdict = verdict(line, terminal.color);
        let mut first = format!("  {verdict}{:name_width$}", line.name);
        for (mark, text) in [("", &line.detail), ("-> ", &line.advice)] {
            if text.is_empty() {
                continue;
            }
            for row in wrap(&format!("{mark}{}", terminal_name(text)), width, 0, 0) {
                let _ = writeln!(out, "{first}{row}");
                first = " ".repeat(indent);
            }
        }
    }
    let _ = writeln!(out, "\n{}", end(probe));
    out
}

fn title(subject: Subject, probe: &Probe) -> String {
    let process = match probe.title.as_str() {
        "" => format!("pid {}", probe.pid),
        title => format!("{} (pid {})", terminal_name(title), probe.pid),
    };
    match subject {
        Subject::Engine if probe.asked => format!("Engines, tried on {process}"),
        Subject::Engine => "Engines, tried on wcprof itself".into(),
        Subject::Privilege => "Privileges of wcprof".into(),
        Subject::Kernel => "Kernel".into(),
        Subject::Process if probe.asked => format!("Process {process}"),
        Subject::Process => "Process: wcprof itself".into(),
        Subject::Limit => "Limits".into(),
    }
}

fn verdict(line: &ProbeLine, color: bool) -> String {
    let (word, code) = match line.verdict {
        Verdict::Ok => ("ok", 32),
        Verdict::Limited => ("limited", 33),
        Verdict::Missing => ("missing", 31),
    };
    let padded = format!("{word:VERDICT_WIDTH$}");
    match color {
        true => format!("\x1b[{code}m{padded}\x1b[0m"),
        false => padded,
    }
}

fn end(probe: &Probe) -> String {
    let command = match probe.asked {
        true => format!("`wcprof attach {}`", probe.pid),
        false => "`wcprof attach`".to_owned(),
    };
    let reason = terminal_name(&probe.reason);
    match probe.choice {
        None => format!("{command} would not work: {reason}."),
        Some(engine) if probe.asked => {
            format!("{command} would use the engine {engine}: {reason}.")
        }
        Some(engine) => format!(
            "{command} would use the engine {engine} for processes that it may read: {reason}. \
             `wcprof check PID` tries one."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    fn terminal(color: bool) -> Terminal {
        Terminal {
            width: Some(60),
            color,
        }
    }

    /// Check the whole text: aligned, advice below, text from outside made harmless.
    #[test]
    fn plain() {
        assert_eq!(
            render(&example(), terminal(false)),
            "\
Engines, tried on x?[31m (pid 42)
  missing  bpf       not permitted
                     -> use procfs
  ok       procfs    all

Process x?[31m (pid 42)
  limited  binaries  `a?b` not
                     -> copy it

`wcprof attach 42` would use the engine procfs: it is the best one that works.
"
        );
    }

    /// Check that color marks the verdict alone, and changes no column.
    #[test]
    fn colored() {
        let text = render(&example(), terminal(true));
        assert!(text.contains("  \x1b[31mmissing  \x1b[0mbpf       not permitted\n"));
        let codes = ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"];
        let bare = codes.iter().fold(text, |text, code| text.replace(code, ""));
        assert_eq!(bare, render(&example(), terminal(false)));
    }
}
