//! The command line: flags as typed, with their defaults and ranges.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::crypto::CryptoArgs;
use crate::diff::DiffArgs;
use crate::filters::{PartArgs, StackArgs};
use crate::import::ImportArgs;
use crate::keep::condition::{self, Condition};
use crate::time::parse_keep;
use crate::top::TopArgs;

/// Wallclock profiler for native Linux processes: where did the time of every thread go, running
/// or not? It never stops, signals or writes to its target; `crypto observe` and `crypto advise`
/// alone put breakpoints into a library that it maps, and say so first.
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
    /// Turn what another profiler left into a trace: perf.data, folded stacks, uwpmp's or gdbpmp's
    /// text
    #[command(after_help = "Examples: wcprof import perf.data -o perf.wct; wcprof report perf.wct")]
    Import(ImportArgs),
    /// Make one trace of several: of the hosts of a cluster, or of runs one after the other
    #[command(after_help = "Example: wcprof merge node1.wct node2.wct -o cluster.wct")]
    Merge(MergeArgs),
    /// Print the hotspots of a saved trace, with evidence and advice
    #[command(after_help = "Example: wcprof hotspots osd.wct")]
    Hotspots(HotspotsArgs),
    /// Say where threads of a saved trace lost time to locks, and what those who held them did
    #[command(after_help = "Example: wcprof locks osd.wct")]
    Locks(LocksArgs),
    /// Say of each module where its names come from, what is missing, and what would supply it
    #[command(after_help = "Example: wcprof symbols osd.wct")]
    Symbols(SymbolsArgs),
    /// Say what works on this machine, and for a process, and what to do about what does not
    #[command(after_help = "Example: wcprof check $(pidof ceph-osd)")]
    Check(CheckArgs),
    /// Judge how a process and its host are set up: findings with evidence and advice, read-only
    #[command(
        after_help = "Examples: wcprof doctor $(pidof ceph-osd); wcprof doctor osd.wct --all"
    )]
    Doctor(DoctorArgs),
    /// What the encryption of Ceph's messenger costs here, and what would lower it
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

/// Which processes. What several options choose is recorded together.
#[derive(Args, Debug, Default)]
#[group(id = "targets", required = true, multiple = true)]
pub(crate) struct TargetArgs {
    /// Processes to record
    #[arg(value_name = "PID")]
    pub(crate) pids: Vec<i32>,
    /// Processes with a name, or a program's file name, that matches
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Vec<String>,
    /// Processes in this control group and below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Vec<String>,
    /// The QEMU process of this virtual machine (`-name NAME` or `-name guest=NAME,...`)
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Vec<String>,
    /// The ceph-osd process with this id (`--id` or `-i`)
    #[arg(long, value_name = "ID")]
    pub(crate) osd: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) targets: TargetArgs,
    /// Also record the processes that these have started, and those that they start meanwhile
    #[arg(long)]
    pub(crate) children: bool,
    /// Length of the recording in seconds; 0, and by default with --keep, records until Ctrl-C
    #[arg(short, long, value_name = "SECS", default_value_t = 10.0, default_value_if("keep", ArgPredicate::IsPresent, "0"), value_parser = duration, allow_negative_numbers = true)]
    pub(crate) duration: f64,
    /// Trace file; default: wcprof-PID-DATE.wct in the current folder, with the first pid
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: Option<PathBuf>,
    /// Also write a flame graph
    #[arg(long, value_name = "FILE.svg", conflicts_with = "keep")]
    pub(crate) flamegraph: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Also record kernel stacks, and show them below the user stacks of blocked and running
    /// threads
    #[arg(long)]
    pub(crate) kernel: bool,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Leave function names out of the trace; read no debug file and ask no debuginfod server
    #[arg(long)]
    pub(crate) raw: bool,
}

const RATE_HZ: u32 = 99;
const MAX_CPU: u32 = 20;

/// How processes are sampled.
#[derive(Args, Clone, Debug)]
pub(crate) struct SamplingArgs {
    /// Samples of each thread a second, 1 to 1000
    #[arg(short, long, value_name = "HZ", default_value_t = RATE_HZ, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rate: u32,
    /// Record only threads whose name matches; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) threads: Vec<String>,
    /// Leave out threads whose name matches; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude_threads: Vec<String>,
    /// How to observe the target
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(crate) engine: EngineArg,
    /// Most CPU that wcprof itself may use, in percent of one core, 1 to 100; beyond it the rate
    /// is lowered
    #[arg(long, value_name = "PCT", default_value_t = MAX_CPU, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) max_cpu: u32,
}

impl Default for SamplingArgs {
    fn default() -> Self {
        Self {
            rate: RATE_HZ,
            threads: Vec::new(),
            exclude_threads: Vec::new(),
            engine: EngineArg::Auto,
            max_cpu: MAX_CPU,
        }
    }
}

/// The flight recorder.
#[derive(Args, Debug, Default)]
pub(crate) struct KeepArgs {
    /// Keep the last time alone, in memory, and write it to a numbered trace file at SIGUSR1, when a
    /// --trigger holds, and at the end: 60s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_keep)]
    pub(crate) keep: Option<Duration>,
    /// Most memory for what is kept; what would need more is kept for a shorter time, which is
    /// reported
    #[arg(long, value_name = "MB", default_value_t = 256, requires = "keep", value_parser = clap::value_parser!(u64).range(8..=1 << 16))]
    pub(crate) keep_memory: u64,
    /// Write when this holds: `lock of tp_osd_tp > 30% over 5s`, `p99 runnable of msgr-* > 50% over
    /// 10s`, `func:ObjectCacher::* of all > 10% over 10s`; may be given several times
    #[arg(long, value_name = "CONDITION", requires = "keep", value_parser = condition::parse)]
    pub(crate) trigger: Vec<Condition>,
    /// Most files that triggers write
    #[arg(long, value_name = "N", default_value_t = 10, requires = "trigger")]
    pub(crate) trigger_limit: u32,
}

#[derive(Args, Debug)]
pub(crate) struct LocksArgs {
    /// Trace file
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Machine-readable output, with all sites
    #[arg(long)]
    pub(crate) json: bool,
    /// Sites to print as text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(Args, Debug, Default)]
pub(crate) struct RuleArgs {
    /// Rules of your own (TOML): for states and pools, or a hotspot rule; a folder holds the latter
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Hotspot rules of your own (TOML file or folder), beside the built-in ones
    #[arg(long, value_name = "PATH")]
    pub(crate) hotspot_rules: Vec<PathBuf>,
}

/// How names are found, where the trace does not hold them.
#[derive(Args, Clone, Debug)]
pub(crate) struct SymbolArgs {
    /// Function names alone, without inline frames and source lines: faster
    #[arg(long)]
    pub(crate) no_inline: bool,
    /// Most memory for finding names; what would need more loses inline frames, and is reported
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) max_memory: u64,
    /// Neither use nor write the cache of names (in $XDG_CACHE_HOME/wcprof)
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Folder of debug files, searched before /usr/lib/debug; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Copy of the root of the recorded machine: its programs, libraries and debug files
    #[arg(long, value_name = "DIR")]
    pub(crate) sysroot: Option<PathBuf>,
    /// Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here
    #[arg(long)]
    pub(crate) no_debuginfod: bool,
}

impl Default for SymbolArgs {
    fn default() -> Self {
        Self {
            no_inline: false,
            max_memory: 256,
            no_cache: false,
            debug_dir: Vec::new(),
            sysroot: None,
            no_debuginfod: false,
        }
    }
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EngineArg {
    /// The best that works here
    Auto,
    /// BPF task iterator and perf events
    Bpf,
    /// /proc and perf events
    Procfs,
    /// /proc alone: running threads have no stack
    ProcfsOnly,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Trace file
    pub(crate) trace: PathBuf,
    /// Leaf functions first, their callers below them
    #[arg(long)]
    pub(crate) invert: bool,
    /// One tree for each of these [default: thread; pool for html; else all with --callers-of and --callees-of]
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
    /// Operations done during the recording: adds CPU time of an operation, in all and by class of
    /// process
    #[arg(long, value_name = "N", value_parser = operations, allow_negative_numbers = true)]
    pub(crate) ops: Option<f64>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    /// Only who calls this function (its name, arguments and scope may be left out)
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["invert", "callees_of"])]
    pub(crate) callers_of: Option<String>,
    /// Only what this function calls
    #[arg(long, value_name = "FUNCTION", conflicts_with = "invert")]
    pub(crate) callees_of: Option<String>,
    /// Idle time; its share is always printed [default: hide; show for uwpmp, which has no states]
    #[arg(long, value_enum)]
    pub(crate) idle: Option<IdleArg>,
    /// Show the kernel stacks that `attach --kernel` recorded
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Show the state of the thread as a frame
    #[arg(long)]
    pub(crate) states: bool,
    /// Show the file or socket that a thread waits for as a frame: [fdatasync: /var/...]
    #[arg(long)]
    pub(crate) files: bool,
    /// Prune branches below this share of their group's shown time; 0 prunes nothing [default: 0.5
    /// for text and functions, 0.1 for uwpmp, svg and icicle, 0.02 for html, else 0]
    #[arg(long, value_name = "P", value_parser = percent, allow_negative_numbers = true)]
    pub(crate) min_percent: Option<f64>,
    /// How function names are printed
    #[arg(long, value_enum, default_value_t = NamesArg::Full)]
    pub(crate) names: NamesArg,
    /// Show source lines (`function (file.cc:12)`); frames of a function at several lines are then
    /// apart
    #[arg(long, conflicts_with = "no_inline")]
    pub(crate) lines: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = FormatArg::Text)]
    pub(crate) format: FormatArg,
    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NamesArg {
    /// As they are
    Full,
    /// Without template arguments, versioned inline namespaces and suffixes of clones; what is then
    /// named alike is one function
    Short,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ByArg {
    /// Each thread
    Thread,
    /// Threads whose names differ only in a number
    Pool,
    /// Each process
    Process,
    /// Each control group: a container, a service
    #[value(alias = "container")]
    Cgroup,
    /// Each host of a merged trace
    Host,
    /// One tree over all
    All,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum IdleArg {
    /// Leave it out; its share is printed
    Hide,
    /// Show it like any other state
    Show,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum FormatArg {
    /// Tree to read
    Text,
    /// Self and total time of each function
    Functions,
    /// Exactly what uwpmp prints
    Uwpmp,
    /// One line per stack, for flame graph tools
    Folded,
    /// Versioned schema, see docs/json-schema.md
    Json,
    /// Flame graph; roots at the top with --invert
    Svg,
    /// Flame graph with its roots at the top
    Icicle,
    /// One page with everything, to attach to a ticket: findings, graphs, trees, threads over time
    Html,
    /// Protocol buffer for `go tool pprof`, Pyroscope and Parca
    Pprof,
    /// JSON for speedscope.app, with a time line
    Speedscope,
    /// JSON for profiler.firefox.com, with a time line
    Firefox,
    /// A line a sample, for spreadsheets and DuckDB
    Csv,
}

#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Trace files
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Merged trace
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    /// Where the recordings lie in the merged trace's time
    #[arg(long, value_enum, default_value_t = AlignArg::Auto)]
    pub(crate) align: AlignArg,
    /// Call hosts host1, host2, ... and cut kernel releases to their version, for a trace that others are to see;
    /// paths, arguments and functions keep their names. One trace can be enough
    #[arg(long)]
    pub(crate) anonymous: bool,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AlignArg {
    /// By the hosts' clocks if all recordings overlap, else as `start`
    Auto,
    /// By the hosts' clocks
    Clock,
    /// All begin at the same moment
    Start,
}

#[derive(Args, Debug)]
pub(crate) struct HotspotsArgs {
    /// Trace file
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) trace: Option<PathBuf>,
    /// List all rules, your own too, with thresholds and sources
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Machine-readable output
    #[arg(long)]
    pub(crate) json: bool,
    /// Operations done during the recording: adds CPU time of an operation, in all and by class of
    /// process
    #[arg(long, value_name = "N", value_parser = operations, allow_negative_numbers = true)]
    pub(crate) ops: Option<f64>,
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SymbolsArgs {
    /// Trace file, or the pid of a process, which is recorded for a second
    #[arg(value_name = "TRACE|PID")]
    pub(crate) subject: PathBuf,
    /// Machine-readable output
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Process to check
    pub(crate) pid: Option<i32>,
    /// Machine-readable output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Process to look at, or a trace that recorded one
    #[arg(value_name = "PID|TRACE", conflicts_with_all = ["snapshot", "list"])]
    pub(crate) subject: Option<PathBuf>,
    /// Machine-readable output, with what passed
    #[arg(long)]
    pub(crate) json: bool,
    /// Also print the checks that passed
    #[arg(long)]
    pub(crate) all: bool,
    /// Look at a saved snapshot, or at what a trace recorded, instead of a process
    #[arg(long, value_name = "FILE|TRACE", conflicts_with = "list")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Save what was read, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) save_snapshot: Option<PathBuf>,
    /// Folder with copies of another host's /proc and /sys
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true
    )]
    pub(crate) root: PathBuf,
    /// List all checks, with what they test and their sources
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Length of the recording in seconds
    #[arg(short, long, value_name = "SECS", default_value_t = 5.0, value_parser = demo_duration, allow_negative_numbers = true)]
    pub(crate) duration: f64,
    /// How to observe the workload
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(crate) engine: EngineArg,
}

pub(crate) fn number(text: &str, min: f64, max: f64, unit: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        Ok(_) => Err(format!("must be {min} to {max} {unit}")),
        Err(_) => Err(format!("not a number; {min} to {max} {unit} are possible")),
    }
}

/// A day is long enough for a sampler, and keeps every time of a trace in range.
fn duration(text: &str) -> Result<f64, String> {
    number(text, 0.0, 86_400.0, "seconds")
}

fn demo_duration(text: &str) -> Result<f64, String> {
    number(text, 0.5, 600.0, "seconds")
}

fn operations(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e18, "operations")
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0, 100.0, "percent")
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
