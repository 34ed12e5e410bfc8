//! Help by what one wants to know, manual pages and completions.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::args::ForceArgs;
use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::{print, write_whole};

/// The commands by what they answer.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Where does the time go?",
        &["attach", "top", "report", "diff", "agent"],
    ),
    ("What should change?", &["doctor", "crypto"]),
    ("What works here?", &["check"]),
    (
        "Files and set-up",
        &["merge", "import", "completions", "man"],
    ),
];

/// The first screen of a real program, shortened, behind the long help of the commands that print it.
const FIRST_SCREEN: &str = include_str!("first-screen.txt");

/// The command line's definition.
fn definition() -> Command {
    let with_screen = |command: Command| {
        let examples = command.get_after_help().cloned().unwrap_or_default();
        command.after_long_help(format!("{examples}\n\n{FIRST_SCREEN}"))
    };
    let command = Cli::command().mut_subcommand("attach", with_screen);
    command.mut_subcommand("report", with_screen)
}

/// The command line as it is typed.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches)
}

/// The command line's definition, with the list of commands in groups.
pub(crate) fn command() -> Command {
    let command = definition();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, "{heading}");
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(|sub| sub.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(list, "  {name:13}{about}");
        }
        list.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{{options}}{{after-help}}\n"
    ))
}

/// Prints completions.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    generate(shell, &mut command(), "wcprof", &mut bytes);
    print(&bytes)
}

/// Prints a manual page, or writes all to a folder.
pub(crate) fn man(words: &[String], dir: Option<&Path>, force: ForceArgs) -> Result<(), Failure> {
    let mut root = definition().disable_help_subcommand(true);
    root.build();
    if let Some(dir) = dir {
        fs::create_dir_all(dir)
            .with_context(|| format!("failed to make the folder `{}`", dir.display()))?;
        return write_pages(&root, dir, force);
    }
    let mut command = &root;
    for word in words {
        let sub = command.find_subcommand(word);
        let unknown = || Failure::usage(anyhow::anyhow!("there is no command `{word}`"));
        command = sub.ok_or_else(|| unknown().hint("`wcprof --help` lists the commands"))?;
    }
    print(&page(command)?)
}

fn page(command: &Command) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    Man::new(command.clone()).render(&mut bytes)?;
    Ok(bytes)
}

fn write_pages(command: &Command, dir: &Path, force: ForceArgs) -> Result<(), Failure> {
    let file = dir.join(Man::new(command.clone()).get_filename());
    write_whole(&file, force, &page(command)?)?;
    let mut subs = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    subs.try_for_each(|sub| write_pages(sub, dir, force))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    /// Lines of a screen, and its columns.
    const SCREEN: (usize, usize) = (40, 100);

    fn visible(command: &Command) -> Vec<&Command> {
        let subs = command.get_subcommands();
        subs.filter(|sub| !sub.is_hide_set()).collect()
    }

    /// Check that each command is in one group.
    #[test]
    fn groups() {
        let command = Cli::command();
        let all: BTreeSet<&str> = visible(&command).iter().map(|sub| sub.get_name()).collect();
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        assert_eq!(grouped.len(), all.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), all);
    }

    /// Check that the short help of each command fits a screen.
    #[test]
    fn short_help() {
        fn check(command: Command) {
            let name = command.get_name().to_owned();
            let help = command.clone().term_width(SCREEN.1).render_help();
            let n = help.to_string().lines().count();
            assert!(n <= SCREEN.0, "{name} -h has {n} lines:\n{help}");
            for sub in visible(&command) {
                check(sub.clone());
            }
        }
        check(command());
    }

    /// Check that the commands which reports name are there.
    #[test]
    fn named_in_reports() {
        let names: BTreeSet<String> = visible(&Cli::command())
            .iter()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        let crates = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut folders = vec![
            crates.join("wcprof-report/src"),
            crates.join("wcprof-findings/src"),
            crates.join("wcprof-findings/rules"),
            crates.join("wcprof-doctor/src"),
        ];
        let mut n_named = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let is_text = |extension| extension == "rs" || extension == "toml";
                if !path.extension().is_some_and(is_text) {
                    continue;
                }
                let text = fs::read_to_string(&path).unwrap();
                for named in text.split("`wcprof ").skip(1) {
                    let end = named.find(|c: char| !c.is_ascii_lowercase());
                    let name = &named[..end.unwrap_or(named.len())];
                    assert!(names.contains(name), "{}: {name}", path.display());
                    n_named += 1;
                }
            }
        }
        assert!(n_named > 3, "{n_named}");
    }

    /// Check that there is a page of each command, and completions for each shell.
    #[test]
    fn pages() {
        let folder = tempfile::tempdir().unwrap();
        man(&[], Some(folder.path()), ForceArgs::default()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("wcprof-crypto-advise.1").contains("duration"));
        assert!(read("wcprof.1").contains("wcprof\\-attach"));
        let n_files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(n_files, 1 + visible(&Cli::command()).len() + 4);
    }
}
