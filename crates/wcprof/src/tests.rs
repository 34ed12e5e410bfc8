//! Checks man pages and completions of shells, which are checked in, against the command line's definition.
//! `cargo xtask generate` writes them anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::cli::Cli;

/// Each file's content by its path in `docs`.
fn files() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (shell, name) in [
        (Shell::Bash, "wcprof.bash"),
        (Shell::Zsh, "_wcprof"),
        (Shell::Fish, "wcprof.fish"),
    ] {
        let mut bytes = Vec::new();
        generate(shell, &mut Cli::command(), "wcprof", &mut bytes);
        files.insert(format!("completions/{name}"), bytes);
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    add_pages(&command, &mut files);
    files
}

fn add_pages(command: &Command, files: &mut BTreeMap<String, Vec<u8>>) {
    let man = Man::new(command.clone());
    let mut bytes = Vec::new();
    man.render(&mut bytes).expect("memory takes everything");
    files.insert(format!("man/{}", man.get_filename()), bytes);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        add_pages(sub, files);
    }
}

/// Check that the man pages and completions that are checked in are those of the command line as
/// it is, and that there are no others.
#[test]
fn checked_in() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = files();
    if std::env::var_os("WCPROF_BLESS").is_some() {
        for folder in ["man", "completions"] {
            let folder = docs.join(folder);
            if folder.exists() {
                fs::remove_dir_all(&folder).expect("the old files go");
            }
            fs::create_dir_all(&folder).expect("a folder");
        }
        for (name, bytes) in &files {
            fs::write(docs.join(name), bytes).expect("a file can be written");
        }
    }
    for (name, bytes) in &files {
        let found = fs::read(docs.join(name)).unwrap_or_default();
        assert!(
            found == *bytes,
            "docs/{name} is not that of the command line; `cargo xtask generate` writes it"
        );
    }
    let n_found: usize = ["man", "completions"]
        .map(|folder| fs::read_dir(docs.join(folder)).map_or(0, Iterator::count))
        .iter()
        .sum();
    assert_eq!(n_found, files.len(), "files of commands that are gone");
}

/// Check that the help of each command has examples that it parses.
#[test]
fn examples() {
    fn check(command: &Command) {
        let subs: Vec<_> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .collect();
        if subs.is_empty() {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let (_, examples) = help.split_once("Example").unwrap_or_default();
            let lines = examples.split(['\n', ';']);
            let lines = lines.filter_map(|line| Some(&line[line.find("wcprof ")?..]));
            let mut n = 0;
            for line in lines {
                let line = line.replace("$(pidof ceph-osd)", "1");
                let words = shlex::split(&line).expect("quotes are closed");
                let parsed = Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                n += 1;
            }
            assert!(n > 0, "{} has no example", command.get_name());
        }
        subs.into_iter().for_each(check);
    }
    check(&Cli::command());
}
