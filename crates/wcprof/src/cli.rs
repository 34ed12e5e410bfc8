//! The command line: all commands, with examples.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::agent::AgentArgs;
use crate::args::{AttachArgs, CheckArgs, DoctorArgs, ForceArgs, MergeArgs, ReportArgs};
use crate::command::BecomeArgs;
use crate::confined::ReaderArgs;
use crate::crypto::CryptoArgs;
use crate::diff::DiffArgs;
use crate::import::ImportArgs;
use crate::top::TopArgs;

/// Wallclock profiler for native Linux processes: shows where the time of every thread went, running
/// or not. It never stops, signals or writes to its target. Only `crypto observe` and `crypto advise`
/// put breakpoints into a library of the target, and they say so first.
#[derive(Parser, Debug)]
#[command(name = "wcprof", version)]
#[command(
    after_help = "`wcprof attach --help` shows what a recording says of a real program.\n\n\
    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no such target, \
    4 not permitted, 5 unreadable trace."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Record live processes, save the trace and print where their time went
    #[command(
        after_help = "Examples: wcprof attach --osd 3 -d 30s; wcprof attach --vm web1 --flamegraph vm.svg; \
        wcprof attach -- rbd bench --io-type write rbd/image; \
        wcprof attach --osd 3 --keep 60s --trigger 'lock of tp_osd_tp > 30% over 5s'"
    )]
    Attach(AttachArgs),
    /// Record for ever, and push a profile of each process to a store every 30 s
    #[command(
        mut_arg("rate", |arg| arg.default_value("19")),
        mut_arg("max_cpu", |arg| arg.default_value("1").help("CPU limit for wcprof itself, in percent of one core, 1 to 100; above it the rate is lowered")),
        mut_arg("max_memory", |arg| arg.default_value("250").help("Memory limit for wcprof: what is kept, finding names, profiles")),
        mut_arg("ceph", |arg| arg.hide(true)),
        after_help = "Examples: wcprof agent --osd '*' --store http://pyroscope:4040; \
        wcprof agent --config /etc/wcprof/agent.toml --check"
    )]
    Agent(Box<AgentArgs>),
    /// Show live where the threads of processes spend their time
    #[command(after_help = "Example: wcprof top --osd 3")]
    Top(TopArgs),
    /// Show a saved trace: first screen, trees, locks, flame graph, page, exports
    #[command(
        after_help = "Examples: wcprof report osd.wct --tree; wcprof report osd.wct --format html -o osd.html"
    )]
    Report(ReportArgs),
    /// Compare two saved traces: what changed, by how much, and whether that is significant
    #[command(after_help = "Example: wcprof diff before.wct after.wct --per-op 120000,118500")]
    Diff(DiffArgs),
    /// Say what to change: findings of time and of settings, with evidence and advice
    #[command(
        mut_arg("subjects", |arg| arg.value_name("PID|FILE").help("Processes, a trace, or saved settings")),
        after_help = "Examples: wcprof doctor osd.wct; wcprof doctor --osd 3 --all"
    )]
    Doctor(DoctorArgs),
    /// Show what encryption of Ceph's messenger costs here, and what would reduce it
    Crypto(CryptoArgs),
    /// Show what works here and for processes, and where names come from
    #[command(
        mut_arg("subjects", |arg| arg.value_name("PID|TRACE").help("Processes, or traces")),
        after_help = "Examples: wcprof check --osd 3; wcprof check osd.wct"
    )]
    Check(CheckArgs),
    /// Merge traces into one: of the hosts of a cluster, of runs, of one process over time
    #[command(
        after_help = "Examples:\n  wcprof merge node1.wct node2.wct -o cluster.wct\n  \
        wcprof merge 9h.wct 10h.wct 11h.wct -o osd.wct"
    )]
    Merge(MergeArgs),
    /// Make a trace of perf.data, folded stacks, or text of uwpmp or gdbpmp
    #[command(after_help = "Examples: wcprof import perf.data -o perf.wct; wcprof report perf.wct")]
    Import(ImportArgs),
    /// Print completions for a shell
    #[command(after_help = "Example: wcprof completions bash > /etc/bash_completion.d/wcprof")]
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page of a command, or write all of them
    #[command(
        after_help = "Examples: wcprof man attach | man -l -; wcprof man --dir /usr/local/share/man/man1"
    )]
    Man {
        /// Command, as in `crypto advise`; without one, wcprof itself
        command: Vec<String>,
        /// Write the pages of all commands to this folder
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        force: ForceArgs,
    },
    /// The process that reads symbols and DWARF
    #[command(hide = true)]
    ConfinedNames(ReaderArgs),
    /// The process that reads a file to import
    #[command(hide = true)]
    ConfinedImport(ReaderArgs),
    /// The process that becomes the command of `attach -- COMMAND`
    #[command(hide = true, name = "become-command")]
    Become(BecomeArgs),
}

impl Command {
    /// Whether it reads live processes, or files that may be on a server.
    pub(crate) fn may_hang(&self) -> bool {
        !matches!(
            self,
            Self::Crypto(_)
                | Self::Completions { .. }
                | Self::Man { .. }
                | Self::ConfinedNames(_)
                | Self::ConfinedImport(_)
                | Self::Become(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Check that clap finds no contradiction in the definitions.
    #[test]
    fn definitions() {
        Cli::command().debug_assert();
    }

    /// Check that every command that README and docs show is one, with flags that there are.
    #[test]
    fn documented() {
        let commands = wcprof_testkit::doc_commands(&["wcprof"]);
        assert!(commands.len() > 50, "{}", commands.len());
        for command in commands {
            let parsed = Cli::try_parse_from(&command.words);
            assert!(parsed.is_ok(), "{command:?}: {}", parsed.unwrap_err());
        }
    }

    /// Check that processes can be chosen in several ways at once.
    #[test]
    fn targets() {
        let parse = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["wcprof", "attach"], args].concat()).ok()?;
            match cli.command {
                Command::Attach(args) => Some((args.targets.subjects, args.targets.found.osd)),
                _ => None,
            }
        };
        assert_eq!(
            parse(&["1", "2"]),
            Some((vec!["1".into(), "2".into()], vec![]))
        );
        let both = parse(&["--osd", "3", "--osd", "4", "7", "--name", "x*"]);
        assert_eq!(both, Some((vec!["7".into()], vec!["3".into(), "4".into()])));
        assert!(parse(&["--vm", "a", "--children"]).is_some());
    }

    /// Check that values out of range are refused and the limits are taken.
    #[test]
    fn ranges() {
        let parse =
            |args: &[&str]| Cli::try_parse_from([&["wcprof", "attach", "1"], args].concat());
        for good in [
            ["-r", "1"],
            ["-r", "1000"],
            ["-d", "0"],
            ["-d", "24h"],
            ["-d", "0.5"],
        ] {
            assert!(parse(&good).is_ok(), "{good:?}");
        }
        for bad in [
            ["-r", "0"],
            ["-r", "1001"],
            ["-d", "-1"],
            ["-d", "nan"],
            ["-d", "86401"],
        ] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
    }
}
