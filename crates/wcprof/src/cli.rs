//! The command line: all commands, with examples.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::args::{
    AttachArgs, CheckArgs, DemoArgs, DoctorArgs, HotspotsArgs, LocksArgs, MergeArgs, ReportArgs,
    SymbolsArgs,
};
use crate::crypto::CryptoArgs;
use crate::diff::DiffArgs;
use crate::import::ImportArgs;
use crate::top::TopArgs;

/// Wallclock profiler for native Linux processes: shows where the time of every thread went, running
/// or not. It never stops, signals or writes to its target. Only `crypto observe` and `crypto advise`
/// put breakpoints into a library of the target, and they say so first.
#[derive(Parser, Debug)]
#[command(name = "wcprof", version, propagate_version = true)]
#[command(
    after_help = "Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no such target, \
    4 not permitted, 5 unreadable trace."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Record a live process, save the trace and print where its time went
    #[command(
        after_help = "Examples: wcprof attach $(pidof ceph-osd) -d 10 --flamegraph osd.svg; \
        wcprof attach --osd 3 --vm web1; wcprof attach --name radosgw --name ceph-osd; \
        wcprof attach --osd 3 --keep 60s --trigger 'lock of tp_osd_tp > 30% over 5s'"
    )]
    Attach(AttachArgs),
    /// Show live where the threads of a process spend their time
    #[command(after_help = "Example: wcprof top $(pidof ceph-osd)")]
    Top(TopArgs),
    /// Print a saved trace as a tree or flame graph, or export it to other viewers
    #[command(after_help = "Examples: wcprof report osd.wct --invert --by pool; \
        wcprof report osd.wct --format html -o osd.html")]
    Report(ReportArgs),
    /// Compare two saved traces: what changed, by how much, and whether that is significant
    #[command(after_help = "Example: wcprof diff before.wct after.wct --per-op 120000,118500")]
    Diff(DiffArgs),
    /// Convert a file of another profiler to a trace: perf.data, folded stacks, text of uwpmp or gdbpmp
    #[command(after_help = "Examples: wcprof import perf.data -o perf.wct; wcprof report perf.wct")]
    Import(ImportArgs),
    /// Merge traces into one: of the hosts of a cluster, of successive runs, or of one process over time
    #[command(
        after_help = "Examples:\n  wcprof merge node1.wct node2.wct -o cluster.wct\n  \
        wcprof merge 9h.wct 10h.wct 11h.wct -o osd.wct"
    )]
    Merge(MergeArgs),
    /// Print the hotspots of a saved trace, with evidence and advice
    #[command(after_help = "Example: wcprof hotspots osd.wct")]
    Hotspots(HotspotsArgs),
    /// Show where threads of a saved trace waited for locks, and what the holders did meanwhile
    #[command(after_help = "Example: wcprof locks osd.wct")]
    Locks(LocksArgs),
    /// Show for each module where its names come from, what is missing, and what would supply it
    #[command(after_help = "Example: wcprof symbols osd.wct")]
    Symbols(SymbolsArgs),
    /// Show what works on this machine and for a process, and what to do about the rest
    #[command(after_help = "Example: wcprof check $(pidof ceph-osd)")]
    Check(CheckArgs),
    /// Check the settings of a process and its host: findings with evidence and advice, read-only
    #[command(
        after_help = "Examples: wcprof doctor $(pidof ceph-osd); wcprof doctor osd.wct --all"
    )]
    Doctor(DoctorArgs),
    /// Show what encryption of Ceph's messenger costs here, and what would reduce it
    Crypto(CryptoArgs),
    /// Profile a built-in workload shaped like a Ceph OSD
    #[command(after_help = "Example: wcprof demo")]
    Demo(DemoArgs),
    /// The workload that `demo` profiles
    #[command(hide = true)]
    DemoWorkload {
        /// Seconds it runs.
        seconds: f64,
        /// Folder of the slow disk; real files without it.
        #[arg(long)]
        disk: Option<PathBuf>,
    },
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

    /// Check that processes can be chosen in several ways at once, and that one must be.
    #[test]
    fn targets() {
        let parse = |args: &[&str]| {
            let cli = Cli::try_parse_from([&["wcprof", "attach"], args].concat()).ok()?;
            match cli.command {
                Command::Attach(args) => Some((args.targets.pids, args.targets.osd)),
                _ => None,
            }
        };
        assert_eq!(parse(&["1", "2"]), Some((vec![1, 2], vec![])));
        let both = parse(&["--osd", "3", "--osd", "4", "7", "--name", "x*"]);
        assert_eq!(both, Some((vec![7], vec!["3".into(), "4".into()])));
        assert!(parse(&["--vm", "a", "--children"]).is_some());
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&["--children"]), None);
    }

    /// Check that values out of range are refused and the limits are taken.
    #[test]
    fn ranges() {
        let parse =
            |args: &[&str]| Cli::try_parse_from([&["wcprof", "attach", "1"], args].concat());
        for good in [["-r", "1"], ["-r", "1000"], ["-d", "0"], ["-d", "86400"]] {
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
