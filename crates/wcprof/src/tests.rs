//! Checks the examples of the help.

use clap::{Command, CommandFactory};

use crate::cli::Cli;

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
                // What the shell does with the output is its own.
                let line = line.split(" | ").next().unwrap_or_default();
                let line = line.split(" > /").next().unwrap_or_default();
                let words = shlex::split(line).expect("quotes are closed");
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
