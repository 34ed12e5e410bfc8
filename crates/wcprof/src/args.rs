//! Flags as typed, with their defaults and ranges. Commands with flags of their own define these beside
//! what they do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use wcprof_findings::Condition;
use wcprof_profile::GroupBy;
use wcprof_text::{parse_short_time, time_in};

use crate::filters::{PartArgs, StackArgs};

/// Which processes: by pid or by what the flags choose, all together. Commands that read files, too, take traces
/// in place of pids.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Processes")]
pub struct TargetArgs {
    /// Processes
    #[arg(value_name = "PID")]
    pub subjects: Vec<PathBuf>,
    /// Those that are found.
    #[command(flatten)]
    pub found: SelectorArgs,
    /// A built-in workload shaped like a Ceph OSD, started for this
    #[arg(long)]
    pub demo: bool,
}

impl TargetArgs {
    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        self.subjects.is_empty() && !self.demo && self.found.is_empty()
    }
}

/// Which processes, by what they are.
#[derive(Args, Clone, Debug, Default)]
pub struct SelectorArgs {
    /// ceph-osd processes with this id (`--id`, `-i` or `-n`), or `*` for all
    #[arg(long, value_name = "ID")]
    pub osd: Vec<String>,
    /// QEMU processes of this virtual machine (its `-name`), or `*` for all
    #[arg(long, value_name = "NAME")]
    pub vm: Vec<String>,
    /// Processes whose name or program file name matches
    #[arg(long, value_name = "GLOB")]
    pub name: Vec<String>,
    /// Processes in this control group and below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<String>,
}

impl SelectorArgs {
    /// Whether nothing is chosen.
    pub fn is_empty(&self) -> bool {
        let flags = [&self.osd, &self.vm, &self.name, &self.cgroup];
        flags.iter().all(|list| list.is_empty())
    }
}

/// Whether an output may take the place of a file.
#[derive(Args, Copy, Clone, Debug, Default)]
pub struct ForceArgs {
    /// Replace an output file that exists
    #[arg(long, hide_short_help = true)]
    pub force: bool,
}

/// Where a report goes.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Whether it may replace a file.
    #[command(flatten)]
    pub force: ForceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    /// Also record the child processes of these, now and later
    #[arg(long)]
    pub(crate) children: bool,
    /// Length (10, 2m); 0 is until Ctrl-C or COMMAND's end
    ///
    /// Of the recording: seconds, or with a unit (500ms, 2m).
    #[arg(short, long, value_name = "TIME", default_value = "10s", default_value_ifs([("keep", ArgPredicate::IsPresent, "0"), ("command", ArgPredicate::IsPresent, "0")]), value_parser = parse_short_time, allow_negative_numbers = true)]
    pub(crate) duration: Duration,
    /// One look, as at a core file: counts threads, not time
    ///
    /// Shows where each thread stands, without stopping any.
    #[arg(long, conflicts_with_all = ["duration", "keep", "command", "ceph"])]
    pub(crate) snapshot: bool,
    /// Trace file [default: wcprof-PID-DATE.wct]
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: Option<PathBuf>,
    /// Also write a flame graph
    #[arg(long, value_name = "FILE.svg", conflicts_with = "keep")]
    pub(crate) flamegraph: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: ForceArgs,
    /// Also print the call trees of each pool
    #[arg(long, conflicts_with = "keep")]
    pub(crate) tree: bool,
    /// Call trees with the kernel stacks, which every engine then records
    ///
    /// The engine bpf records them anyway, which adds about a third to wcprof's own CPU time. The engines on /proc need
    /// CAP_SYS_ADMIN for more than one function.
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Record no kernel stacks
    #[arg(long, conflicts_with = "kernel", hide_short_help = true)]
    pub(crate) no_kernel: bool,
    /// Keep whole command lines in the trace, passwords and keys in them included
    ///
    /// Without it a trace holds only arguments that checks, labels and titles need, and of other options the names.
    #[arg(long, hide_short_help = true)]
    pub(crate) full_command_lines: bool,
    /// Save no function names: read no debug file, ask no server
    #[arg(long)]
    pub(crate) raw: bool,
    /// Begin at the next moment that is a multiple of TIME by the clock, so that several hosts begin together: /10s
    #[arg(long, value_name = "/TIME", value_parser = parse_beginning, hide_short_help = true)]
    pub(crate) at: Option<Duration>,
    /// Run COMMAND as this user, with the user's groups and no capabilities
    #[arg(
        long,
        value_name = "USER",
        requires = "command",
        hide_short_help = true
    )]
    pub(crate) user: Option<String>,
    #[command(flatten)]
    pub(crate) targets: TargetArgs,
    /// Command to run and to record, until it ends; its exit code is that of wcprof
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["subjects", "demo", "keep"])]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

/// `/10s`
fn parse_beginning(text: &str) -> Result<Duration, String> {
    let time = text
        .strip_prefix('/')
        .ok_or("a slash and a time, such as /10s")?;
    let time = parse_short_time(time)?;
    match time < Duration::from_millis(100) {
        true => Err("at least 100ms".to_owned()),
        false => Ok(time),
    }
}

/// How processes are sampled.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Samples of each thread a second, 1 to 1000
    #[arg(short, long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rate: u32,
    /// Record only threads whose name matches
    #[arg(long, value_name = "GLOB")]
    pub(crate) threads: Vec<String>,
    /// Leave out threads whose name matches; can be given several times
    #[arg(long, value_name = "GLOB", hide_short_help = true)]
    pub(crate) exclude_threads: Vec<String>,
    /// How to observe the target
    #[arg(long, value_enum, default_value_t = EngineArg::Auto, hide_short_help = true)]
    pub(crate) engine: EngineArg,
    /// CPU limit for wcprof itself, in percent of one core, 1 to 100; above it the rate is lowered
    #[arg(long, value_name = "PCT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), hide_short_help = true)]
    pub(crate) max_cpu: u32,
    /// Also record what Ceph's processes count: operations, latencies. Asks their admin sockets once a second
    ///
    /// A thread of the process answers, which takes it about 1 ms of CPU time each time.
    #[arg(long)]
    pub(crate) ceph: bool,
    /// No timers on CPUs of isolcpus= and nohz_full=; threads that run there have no stack then
    #[arg(long, hide_short_help = true)]
    pub(crate) spare_isolated: bool,
}

/// The flight recorder.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Flight recorder")]
pub(crate) struct KeepArgs {
    /// Keep only the most recent TIME, in memory, until a --trigger or Ctrl-C
    ///
    /// It is written to a numbered trace file at SIGUSR1, when a --trigger holds, and at the end. The recording then
    /// has no length of its own.
    #[arg(long, value_name = "TIME", value_parser = parse_keep)]
    pub(crate) keep: Option<Duration>,
    /// Memory limit for what is kept; above it a shorter time is kept, and that is reported
    #[arg(long, value_name = "MB", default_value_t = 256, requires = "keep", value_parser = clap::value_parser!(u64).range(8..=1 << 16), hide_short_help = true)]
    pub(crate) keep_memory: u64,
    /// Write when this holds: `lock of tp_osd_tp > 30% over 5s`
    ///
    /// Others: `p99 runnable of msgr-* > 50% over 10s`, `func:ObjectCacher::* of all > 10% over 10s`. Can be given
    /// several times.
    #[arg(long, value_name = "CONDITION", requires = "keep", value_parser = str::parse::<Condition>)]
    pub(crate) trigger: Vec<Condition>,
    /// Files that triggers write at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        requires = "trigger",
        hide_short_help = true
    )]
    pub(crate) trigger_limit: u32,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Rules and names")]
pub(crate) struct RuleArgs {
    /// Your own rules (TOML), in addition to the built-in ones
    ///
    /// A file for states and pools, a hotspot rule, or a folder of hotspot rules.
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Vec<PathBuf>,
}

/// Rules, and how names are found.
#[derive(Args, Debug)]
pub struct AnalysisArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

/// How names are found, where the trace does not hold them.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Rules and names")]
pub(crate) struct SymbolArgs {
    /// Only function names, no inline frames and source lines: faster
    #[arg(long, hide_short_help = true)]
    pub(crate) no_inline: bool,
    /// Memory limit for finding names; above it, inline frames are dropped, and that is reported
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20), hide_short_help = true)]
    pub(crate) max_memory: u64,
    /// Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)
    #[arg(long, hide_short_help = true)]
    pub(crate) no_cache: bool,
    /// Folder of debug files, searched before /usr/lib/debug; can be given several times
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Copy of the recorded machine's root: its programs, libraries and debug files
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) sysroot: Option<PathBuf>,
    /// Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here
    #[arg(long, hide_short_help = true)]
    pub(crate) no_debuginfod: bool,
}

/// Flags of which none is given.
pub fn defaults<T: Args>() -> T {
    let command = T::augment_args(clap::Command::new("wcprof"));
    let matches = command.get_matches_from(["wcprof"]);
    T::from_arg_matches(&matches).expect("no flag is required")
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum EngineArg {
    /// The best one that works here
    Auto,
    /// BPF task iterator and perf events
    Bpf,
    /// /proc and perf events
    Procfs,
    /// Only /proc: running threads have no stack
    ProcfsOnly,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Trace file
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    /// Machine-readable output
    #[arg(long, conflicts_with_all = ["format", "functions", "waits"])]
    pub(crate) json: bool,
    /// markdown, svg, html, pprof, speedscope, firefox, csv, parquet, folded
    ///
    /// Also icicle: svg with the roots at the top. And uwpmp: what uwpmp prints.
    #[arg(long, value_enum, hide_possible_values = true, conflicts_with_all = ["tree", "functions", "waits"])]
    pub(crate) format: Option<FormatArg>,
    #[command(flatten)]
    pub(crate) out: OutputArgs,
    /// Operations done meanwhile: adds CPU time per operation
    #[arg(long, value_name = "N", value_parser = operations, allow_negative_numbers = true, hide_short_help = true)]
    pub(crate) ops: Option<f64>,
    /// Length of the slices of time of --format parquet, 1ms to 24h [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| time_in(text, "1ms", "24h"), hide_short_help = true)]
    pub(crate) slice: Option<Duration>,
    /// Sites of --locks that are printed as text
    #[arg(long, value_name = "N", default_value_t = 10, hide_short_help = true)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) trees: TreeArgs,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) stacks: StackArgs,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

/// What is shown; without a flag, the first screen.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct WhatArgs {
    /// Call trees; implied by the flags on trees
    #[arg(long)]
    pub(crate) tree: bool,
    /// Self and total time of each function
    #[arg(long)]
    pub(crate) functions: bool,
    /// Lock sites: time lost, waiters, and what the holders did
    ///
    /// A site is one of all processes of a program; --by gives each process, pool or thread its own.
    #[arg(long, conflicts_with_all = ["StackArgs", "invert", "callers_of", "callees_of", "idle", "kernel", "states", "files", "min_percent", "full_names", "lines"])]
    pub(crate) locks: bool,
    /// Where threads wait, and what decided what each wait is
    #[arg(long)]
    pub(crate) waits: bool,
}

/// What call trees show.
#[derive(Args, Debug)]
#[command(next_help_heading = "Trees")]
pub(crate) struct TreeArgs {
    /// Leaf functions first, their callers below them
    #[arg(long)]
    pub(crate) invert: bool,
    /// One tree for each thread, pool, process, cgroup, host; or all [default: pool]; daemon: a table
    ///
    /// daemon: the times of like processes (OSDs, virtual machines) side by side, and which of them is unlike the others.
    ///
    /// The default is thread for speedscope and uwpmp, and all with --callers-of and --callees-of and for pprof, firefox,
    /// csv and parquet.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) by: Option<ByArg>,
    /// Only who calls this function; arguments and scope may be left out
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["invert", "callees_of"])]
    pub(crate) callers_of: Option<String>,
    /// Only what this function calls
    #[arg(long, value_name = "FUNCTION", conflicts_with = "invert")]
    pub(crate) callees_of: Option<String>,
    /// Idle time, hide or show; its share is always printed [default: hide]
    ///
    /// uwpmp has no states: there the default is show; so it is for snapshots, cores and dumps of stacks.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) idle: Option<IdleArg>,
    /// Show the kernel stacks, too, below the user stacks
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Show the state of the thread as a frame
    #[arg(long, hide_short_help = true)]
    pub(crate) states: bool,
    /// Show the file or socket that a thread waits for as a frame: [fdatasync: /var/...]
    #[arg(long, hide_short_help = true)]
    pub(crate) files: bool,
    /// Prune branches below this share of their group's shown time; 0 prunes nothing [default: 0.5
    /// for text, 0.1 for uwpmp, svg and icicle, 0.02 for html, else 0]
    #[arg(long, value_name = "P", value_parser = percent, allow_negative_numbers = true, hide_short_help = true)]
    pub(crate) min_percent: Option<f64>,
    /// Function names with template arguments and namespaces
    #[arg(long)]
    pub(crate) full_names: bool,
    /// Show source lines: `function (file.cc:12)`
    ///
    /// Each line of a function is then a frame of its own.
    #[arg(long, conflicts_with = "no_inline")]
    pub(crate) lines: bool,
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
    /// A table: like processes as columns, the times of each as rows
    Daemon,
}

impl ByArg {
    /// The groups; the table of daemons is of processes.
    pub(crate) fn group_by(self) -> GroupBy {
        match self {
            Self::Thread => GroupBy::Thread,
            Self::Pool => GroupBy::Pool,
            Self::Process | Self::Daemon => GroupBy::Process,
            Self::Cgroup => GroupBy::Cgroup,
            Self::Host => GroupBy::Host,
            Self::All => GroupBy::All,
        }
    }
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
    /// The first screen: pools, what to do, where CPU time goes, where threads wait
    #[value(skip)]
    Overview,
    /// Call trees
    #[value(skip)]
    Text,
    #[value(skip)]
    Functions,
    #[value(skip)]
    Waits,
    /// Versioned schema, see docs/json-schema.md
    #[value(skip)]
    Json,
    /// Exactly what uwpmp prints
    Uwpmp,
    /// A block to paste into a tracker: the first screen as tables, call trees folded away
    Markdown,
    /// One line per stack, for flame graph tools
    Folded,
    /// Flame graph; roots at the top with --invert
    Svg,
    /// Flame graph with its roots at the top
    Icicle,
    /// One HTML file with everything, for a ticket: findings, graphs, trees, threads over time
    Html,
    /// Protocol buffer for `go tool pprof`, Pyroscope and Parca
    Pprof,
    /// JSON for speedscope.app, with a time line
    Speedscope,
    /// JSON for profiler.firefox.com, with a time line
    Firefox,
    /// A line a sample, for spreadsheets and DuckDB
    Csv,
    /// Columns for DuckDB and pandas, for questions over many traces
    Parquet,
}

#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Trace files
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Merged trace
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) force: ForceArgs,
    /// How the times of the recordings are aligned
    #[arg(long, value_enum, default_value_t = AlignArg::Auto)]
    pub(crate) align: AlignArg,
    /// For a trace that others will see: call hosts host1, host2, ..., cut kernel releases to their version and drop
    /// arguments and environment of processes (of a Ceph daemon its id stays)
    ///
    /// Paths and functions keep their names. Findings on settings of command lines are lost. Works on a single trace, too.
    #[arg(long)]
    pub(crate) anonymous: bool,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AlignArg {
    /// By the hosts' clocks if all recordings overlap, or if a process was recorded several times; else as
    /// `start`
    Auto,
    /// By the hosts' clocks
    Clock,
    /// All start at the same moment; several recordings of a process are several processes
    Start,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Also record a second, and show where the names of each module come from
    ///
    /// And what is missing, and what would supply it. For a trace this is all that is shown.
    #[arg(long)]
    pub(crate) names: bool,
    /// Machine-readable output, a document for each process
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) targets: TargetArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Machine-readable output, with what passed
    #[arg(long)]
    pub(crate) json: bool,
    /// Everything: evidence, advice, sources, and the checks of settings that passed
    #[arg(long)]
    pub(crate) all: bool,
    /// List all rules and checks, also your own, with thresholds and sources
    #[arg(long)]
    pub(crate) list: bool,
    /// Save the settings that were read as JSON, which this command reads, too
    #[arg(long, value_name = "FILE")]
    pub(crate) save_snapshot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: ForceArgs,
    /// Folder with copies of another host's /proc and /sys
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true,
        hide_short_help = true
    )]
    pub(crate) root: PathBuf,
    #[command(flatten)]
    pub(crate) targets: TargetArgs,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

pub(crate) fn number(text: &str, min: f64, max: f64, unit: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        Ok(_) => Err(format!("must be {min} to {max} {unit}")),
        Err(_) => Err(format!("not a number; {min} to {max} {unit} are possible")),
    }
}

fn operations(text: &str) -> Result<f64, String> {
    number(text, 1.0, 1e18, "operations")
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0, 100.0, "percent")
}

/// The time of `--keep`.
pub(crate) fn parse_keep(text: &str) -> Result<Duration, String> {
    time_in(text, "1s", "24h")
}
