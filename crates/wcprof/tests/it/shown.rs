//! What README, documents and help show of a command's output is what the command prints of a saved trace, shortened: lines may
//! be left out, and the end of a line after `...`.

use std::fs;
use std::path::Path;

use crate::support::{at_root, fixture, text};

/// Commands and the lines shown below them, of the blocks of a Markdown file, or of a text that is one block.
fn shown(text: &str, is_markdown: bool) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let (mut in_block, mut is_output) = (!is_markdown, false);
    for line in text.lines() {
        // Help is indented.
        let line = line
            .strip_prefix("  ")
            .filter(|_| !is_markdown)
            .unwrap_or(line);
        if line.starts_with("```") {
            (in_block, is_output) = (!in_block, false);
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| in_block) {
            // What the shell takes as a comment.
            let command = command.split(" # ").next().unwrap_or_default().trim_end();
            found.push((command.to_owned(), Vec::new()));
            is_output = true;
        } else if let Some((_, lines)) = found.last_mut().filter(|_| is_output) {
            lines.push(line.to_owned());
        }
    }
    found
}

/// The arguments of a command on saved traces of the fixtures; `None` for another command.
fn of_fixtures(command: &str) -> Option<Vec<String>> {
    let words = shlex::split(command)?;
    let [program, arguments @ ..] = words.as_slice() else {
        return None;
    };
    let is_trace = |word: &&String| Path::new(word).extension().is_some_and(|end| end == "wct");
    let mut traces = arguments.iter().filter(is_trace).peekable();
    traces.peek()?;
    (program == "wcprof" && traces.all(|name| Path::new(&fixture(name)).exists()))
        .then(|| arguments.to_vec())
}

/// Panics where a line is not printed, in its order. Gives how many commands were compared.
fn check(place: &str, shown: &[(String, Vec<String>)]) -> usize {
    let mut n = 0;
    for (command, lines) in shown.iter().filter(|(_, lines)| !lines.is_empty()) {
        let Some(arguments) = of_fixtures(command) else {
            continue;
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let printed = text(&arguments);
        let mut rest = printed.lines();
        for line in lines.iter().filter(|line| !line.trim().is_empty()) {
            let found = match line.strip_suffix("...") {
                Some(begin) => rest.any(|printed| printed.starts_with(begin)),
                None => rest.any(|printed| printed.trim_end() == line.trim_end()),
            };
            assert!(
                found,
                "{place}: `{command}` does not print, after the lines before it:\n{line}\nbut:\n{printed}"
            );
        }
        n += 1;
    }
    n
}

/// Check README and all documents.
#[test]
fn documents() {
    let mut files = vec![at_root("README.md")];
    let docs = fs::read_dir(at_root("docs")).expect("a folder");
    files.extend(docs.map(|file| file.expect("a file").path().display().to_string()));
    let pages = files.iter().filter(|file| file.ends_with(".md"));
    let compared = pages.map(|file| {
        let text = fs::read_to_string(file).expect("a text");
        check(file, &shown(&text, true))
    });
    let n: usize = compared.sum();
    assert!(n >= 6, "only {n} outputs are compared");
}

/// Check the screen that the help of `attach` and of `report` has.
#[test]
fn help() {
    for command in ["attach", "report"] {
        let help = text(&[command, "--help"]);
        assert_eq!(check(command, &shown(&help, false)), 1, "{help}");
    }
}
