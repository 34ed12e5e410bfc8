//! Flags as typed, with their defaults and ranges. Commands with flags of their own define these beside
//! what they do.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use wcprof_findings::Condition;
use wcprof_text::parse_short_time;

use crate::filters::{PartArgs, StackArgs};

/// Which processes. All processes that the options choose are recorded together.
#[derive(Args, Debug, Default)]
#[group(id = "targets", required = true, multiple = true)]
pub(crate) struct TargetArgs {
    /// Processes to record
    #[arg(value_name = "PID")]
    pub(crate) pids: Vec<i32>,
    /// Processes whose name or program file name matches
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
    /// Also record the child processes of these, and those that start during the recording
    #[arg(long)]
    pub(crate) children: bool,
    /// Length of the recording in seconds; 0 records until Ctrl-C (the default with --keep)
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
    /// Also record kernel stacks, and show them below the user stacks
    #[arg(long)]
    pub(crate) kernel: bool,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
    /// Also print the call trees of each pool
    #[arg(long, conflicts_with = "keep")]
    pub(crate) tree: bool,
    /// Do not save function names in the trace; read no debug file and ask no debuginfod server
    #[arg(long)]
    pub(crate) raw: bool,
}

/// How processes are sampled.
#[derive(Args, Clone, Debug)]
pub(crate) struct SamplingArgs {
    /// Samples of each thread a second, 1 to 1000
    #[arg(short, long, value_name = "HZ", default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rate: u32,
    /// Record only threads whose name matches; can be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) threads: Vec<String>,
    /// Leave out threads whose name matches; can be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude_threads: Vec<String>,
    /// How to observe the target
    #[arg(long, value_enum, default_value_t = EngineArg::Auto)]
    pub(crate) engine: EngineArg,
    /// CPU limit for wcprof itself, in percent of one core, 1 to 100; above it the rate is lowered
    #[arg(long, value_name = "PCT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) max_cpu: u32,
}

/// The flight recorder.
#[derive(Args, Debug, Default)]
pub(crate) struct KeepArgs {
    /// Keep only the most recent TIME, in memory (60s, 5m, 1h). It is written to a numbered trace file at
    /// SIGUSR1, when a --trigger holds, and at the end
    #[arg(long, value_name = "TIME", value_parser = parse_keep)]
    pub(crate) keep: Option<Duration>,
    /// Memory limit for what is kept; above it a shorter time is kept, and that is reported
    #[arg(long, value_name = "MB", default_value_t = 256, requires = "keep", value_parser = clap::value_parser!(u64).range(8..=1 << 16))]
    pub(crate) keep_memory: u64,
    /// Write when this holds: `lock of tp_osd_tp > 30% over 5s`, `p99 runnable of msgr-* > 50% over
    /// 10s`, `func:ObjectCacher::* of all > 10% over 10s`; can be given several times
    #[arg(long, value_name = "CONDITION", requires = "keep", value_parser = str::parse::<Condition>)]
    pub(crate) trigger: Vec<Condition>,
    /// Files that triggers write at most
    #[arg(long, value_name = "N", default_value_t = 10, requires = "trigger")]
    pub(crate) trigger_limit: u32,
}

#[derive(Args, Debug)]
pub(crate) struct LocksArgs {
    /// Trace file
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Machine-readable output, with all lock sites
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page with all of them
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Lock sites to print as text
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

#[derive(Args, Debug, Default)]
pub(crate) struct RuleArgs {
    /// Your own rules (TOML): a file for states and pools or with a hotspot rule, or a folder of hotspot
    /// rules
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Your own hotspot rules (TOML file or folder), in addition to the built-in ones
    #[arg(long, value_name = "PATH")]
    pub(crate) hotspot_rules: Vec<PathBuf>,
}

/// Rules, and how names are found.
#[derive(Args, Debug)]
pub(crate) struct AnalysisArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

/// How names are found, where the trace does not hold them.
#[derive(Args, Clone, Debug)]
pub(crate) struct SymbolArgs {
    /// Only function names, no inline frames and source lines: faster
    #[arg(long)]
    pub(crate) no_inline: bool,
    /// Memory limit for finding names; above it, inline frames are dropped, and that is reported
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) max_memory: u64,
    /// Do not read or write the cache of names (in $XDG_CACHE_HOME/wcprof)
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Folder of debug files, searched before /usr/lib/debug; can be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Copy of the recorded machine's root: its programs, libraries and debug files
    #[arg(long, value_name = "DIR")]
    pub(crate) sysroot: Option<PathBuf>,
    /// Do not ask the debuginfod servers in $DEBUGINFOD_URLS for what is missing here
    #[arg(long)]
    pub(crate) no_debuginfod: bool,
}

/// Flags of which none is given.
pub(crate) fn defaults<T: Args>() -> T {
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
    /// Leaf functions first, their callers below them
    #[arg(long)]
    pub(crate) invert: bool,
    /// One tree for each of these [default: pool; all with --callers-of and --callees-of, and for pprof, firefox and csv]
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
    /// Operations done during the recording: adds CPU time per operation, in total and by class of
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
    /// How function names are printed [default: short for what people read, full for programs]
    #[arg(long, value_enum)]
    pub(crate) names: Option<NamesArg>,
    /// The same as --names full
    #[arg(long, conflicts_with = "names")]
    pub(crate) full_names: bool,
    /// Show source lines (`function (file.cc:12)`); each line of a function is then a frame of its own
    #[arg(long, conflicts_with = "no_inline")]
    pub(crate) lines: bool,
    /// Call trees: `--format text`
    #[arg(long, conflicts_with = "format")]
    pub(crate) tree: bool,
    /// Output format [default: overview; text with --tree and with flags that choose what trees show]
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatArg>,
    /// Write to a file instead of standard output
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
}

#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NamesArg {
    /// In full
    Full,
    /// Without template arguments, versioned inline namespaces and suffixes of clones; functions with
    /// equal short names are merged
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
    /// The first screen: pools, what to do, where CPU time goes, where threads wait
    Overview,
    /// Call trees
    Text,
    /// Self and total time of each function
    Functions,
    /// Where threads wait, and what decided that a wait is idle, a lock ...
    Waits,
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
}

#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Trace files
    #[arg(required = true, value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,
    /// Merged trace
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,
    /// How the times of the recordings are aligned
    #[arg(long, value_enum, default_value_t = AlignArg::Auto)]
    pub(crate) align: AlignArg,
    /// Call hosts host1, host2, ... and cut kernel releases to their version, for a trace that others will see;
    /// paths, arguments and functions keep their names. Works on a single trace, too
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
pub(crate) struct HotspotsArgs {
    /// Trace file
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) trace: Option<PathBuf>,
    /// List all rules, also your own, with thresholds and sources
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Machine-readable output
    #[arg(long)]
    pub(crate) json: bool,
    /// Operations done during the recording: adds CPU time per operation, in total and by class of
    /// process
    #[arg(long, value_name = "N", value_parser = operations, allow_negative_numbers = true)]
    pub(crate) ops: Option<f64>,
    #[command(flatten)]
    pub(crate) analysis: AnalysisArgs,
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
    /// Look at a saved snapshot or a trace instead of a process
    #[arg(long, value_name = "FILE|TRACE", conflicts_with = "list")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Save what was read as JSON
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

/// The time of `--keep`.
pub(crate) fn parse_keep(text: &str) -> Result<Duration, String> {
    let time = parse_short_time(text)?;
    match time < Duration::from_secs(1) {
        true => Err("at least 1s is kept".to_owned()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the shortest time that is kept.
    #[test]
    fn shortest_keep() {
        assert!(parse_keep("999ms").is_err());
        assert_eq!(parse_keep("1s"), Ok(Duration::from_secs(1)));
    }
}
