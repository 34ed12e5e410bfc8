//! The commands that README and docs show, for tests that parse them.

use std::fs;
use std::path::{Path, PathBuf};

/// A command of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocCommand {
    /// Its document, relative to the root of the repository.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// The program and its arguments, as a shell would pass them.
    pub words: Vec<String>,
}

/// Every command in a code block of README, CONTRIBUTING, tests/README and docs/ that begins with these
/// words. What is behind a pipe, a redirection or `&&` is left out; `$(pidof ...)` and `PID` become 4194304, which
/// is no process.
///
/// # Panics
/// When a document cannot be read, or a line is no shell command.
pub fn doc_commands(begin: &[&str]) -> Vec<DocCommand> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "tests/README.md"]
        .map(PathBuf::from)
        .to_vec();
    let docs = fs::read_dir(root.join("docs")).expect("docs is a folder");
    let docs = docs.map(|entry| Path::new("docs").join(entry.expect("an entry").file_name()));
    files.extend(docs.filter(|file| file.extension().is_some_and(|e| e == "md")));
    files.sort();
    let mut commands = Vec::new();
    for file in files {
        let text = fs::read_to_string(root.join(&file)).expect("a document is text");
        commands.extend(
            commands_in(&text, begin)
                .into_iter()
                .map(|(line, words)| DocCommand {
                    file: file.clone(),
                    line,
                    words,
                }),
        );
    }
    commands
}

fn commands_in(text: &str, begin: &[&str]) -> Vec<(usize, Vec<String>)> {
    let mut in_block = false;
    let mut commands = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let line = match line.strip_prefix("    ") {
            Some(indented) if !in_block => indented,
            _ if in_block => line,
            _ => continue,
        };
        let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
        if !line.starts_with(&begin.join(" ")) {
            continue;
        }
        let words = words(line).unwrap_or_else(|| panic!("not a command: {line:?}"));
        if words.iter().zip(begin).all(|(word, begin)| word == begin) {
            commands.push((i + 1, words));
        }
    }
    commands
}

/// A shell's words of a line up to its first operator; `None` when a quote is not closed.
fn words(line: &str) -> Option<Vec<String>> {
    let line = replace_substitutions(line);
    let words = shlex::split(&line)?;
    let is_operator =
        |word: &String| ["|", ">", ">>", "2>", "&&", "||", ";", "&"].contains(&&**word);
    let end = words.iter().position(is_operator).unwrap_or(words.len());
    let words = words.into_iter().take(end);
    let pid = |word: String| match word.trim_end_matches("...") {
        "PID" | "WCPROF_PID" => "4194304".to_owned(),
        other => other.to_owned(),
    };
    Some(words.map(pid).filter(|word| !word.is_empty()).collect())
}

fn replace_substitutions(line: &str) -> String {
    let mut rest = line;
    let mut replaced = String::new();
    while let Some((before, after)) = rest.split_once("$(") {
        replaced.push_str(before);
        replaced.push_str("4194304");
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which lines are commands, and where they end.
    #[test]
    fn commands() {
        let text = "wcprof is a profiler\n```\nwcprof attach PID... -d 0   # until Ctrl-C\n\
            $ sudo wcprof top $(pidof ceph-osd)\nwcprof: not one\n\
            $ wcprof report a.wct --pools 'tp_*' | less\n```\n";
        let found = commands_in(text, &["wcprof"]);
        let words: Vec<String> = found.iter().map(|(_, words)| words.join(" ")).collect();
        assert_eq!(
            words,
            [
                "wcprof attach 4194304 -d 0",
                "wcprof top 4194304",
                "wcprof report a.wct --pools tp_*"
            ]
        );
        assert_eq!(found[0].0, 3);
    }
}
