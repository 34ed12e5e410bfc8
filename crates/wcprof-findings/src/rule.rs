//! A rule as its TOML file states it. Reading and checking files is [`crate::RuleSet`]'s part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wcprof_profile::model::State;

/// How much a finding matters. Ordered: the last is the worst.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing; nothing to do at once.
    Info,
    /// A few percent to gain.
    Low,
    /// Tens of percent to gain on some loads.
    Medium,
    /// Limits the throughput, or a known setting gives a multiple.
    High,
}

impl Severity {
    /// As printed: `high`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The part of a process's time that a remedy usually gives back of which no time is counted.
    pub(crate) fn usual_part(self) -> f64 {
        match self {
            Self::Info => 0.0,
            Self::Low => 0.02,
            Self::Medium => 0.1,
            Self::High => 0.3,
        }
    }
}

/// What can be done about what a rule finds, in the order in which it is shown.
#[derive(
    Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Something keeps threads from running, or makes all of their work slower by a multiple, and can be ended: a limit, a
    /// stop, an emulated processor.
    Unblock,
    /// A setting, a library or a package can be changed.
    #[default]
    Setting,
    /// Other code, another layout or another load would help.
    Rework,
    /// Nothing by itself: it is a fact, or follows from something else.
    Nothing,
}

impl Remedy {
    /// What things to do with this remedy have in common, as a heading above them.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Unblock => "what holds everything up",
            Self::Setting => "settings",
            Self::Rework => "code, load or layout",
            Self::Nothing => "facts",
        }
    }
}

/// A test for hotspots. The format is documented in `docs/hotspots.md`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Lower-case words joined by `-`; a later rule with the same id replaces the earlier one.
    pub id: String,
    /// One line that states the finding.
    pub title: String,
    /// Severity of its findings.
    pub severity: Severity,
    /// What to do, in a few words, after an arrow.
    pub action: String,
    /// Of what kind that is.
    #[serde(default)]
    pub remedy: Remedy,
    /// How much of the counted time the remedy gives back, as a part of it, by glob on the process's name: above 1 where it
    /// also makes other code faster. Of processes that no glob is for it is 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub returns: BTreeMap<String, f64>,
    /// What time it counts.
    #[serde(rename = "match")]
    pub matches: Match,
    /// When that time is a finding.
    pub threshold: Threshold,
    /// What the time is spent on, and why that matters.
    pub explanation: String,
    /// What to do.
    pub advice: String,
    /// How to see that it helped.
    pub verify: String,
    /// The resource that the time is spent waiting for: stall times of it are shown beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Resource>,
    /// For rules on time that threads wait for a CPU: what the finding says instead where the kernel's accounts tell why
    /// they waited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseText>,
    /// For rules on stopped threads: what the finding says to do about each cause that was seen, instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<StopText>,
    /// Counters of the process that time the same work, where they were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<TimedWork>,
    /// Where advice and thresholds come from; at least one.
    pub sources: Vec<Source>,
}

/// What to do about one cause of stopped threads. In its texts `{pid}` is replaced by the process's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopText {
    /// The cause, by [`wcprof_types::StopCause::name`].
    pub cause: String,
    /// What to do, in a few words; those of all causes that were seen follow each other.
    pub action: String,
    /// What to do, in full.
    pub advice: String,
}

impl Rule {
    /// What to do, in a few words and in full, about threads that are stopped by these causes alone.
    pub fn of_stops(&self, causes: &[&str]) -> (String, String) {
        let is_seen = |text: &&StopText| causes.contains(&text.cause.as_str());
        let seen: Vec<&StopText> = self.stops.iter().filter(is_seen).collect();
        let joined = |text: fn(&StopText) -> &str, separator: &str| {
            let texts: Vec<&str> = seen.iter().map(|stop| text(stop).trim()).collect();
            texts.join(separator)
        };
        match seen.is_empty() {
            true => (self.action.clone(), self.advice.clone()),
            false => (joined(|s| &s.action, "; "), joined(|s| &s.advice, " ")),
        }
    }
}

/// A counter that adds up how long one pool takes for a piece of work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimedWork {
    /// Its name.
    pub counter: String,
    /// Glob on the name of the pool that does the work.
    pub pool: String,
}

/// What a finding says where a cause is known. In its texts `{figures}` is replaced by the figures of the cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CauseText {
    /// The cause.
    pub cause: Cause,
    /// In place of the rule's.
    pub severity: Severity,
    /// In place of the rule's.
    pub title: String,
    /// In place of the rule's.
    pub action: String,
    /// In place of the rule's.
    pub remedy: Remedy,
    /// In place of the rule's.
    pub explanation: String,
    /// In place of the rule's.
    pub advice: String,
    /// In place of the rule's.
    pub verify: String,
}

/// A resource that the kernel accounts stall times of (`/proc/pressure`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// CPUs.
    Cpu,
    /// Block devices.
    Io,
    /// Memory.
    Memory,
}

impl Resource {
    /// The name of its file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Io => "io",
            Self::Memory => "memory",
        }
    }
}

/// Why runnable threads did not run.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The CPU quota of a control group was used up.
    Quota,
    /// Their own budget under `SCHED_DEADLINE` was used up.
    Deadline,
    /// Their groups or limits changed meanwhile, and a quota or a budget is or was among them.
    Changed,
    /// How often a limit was reached is not known.
    Unknown,
    /// The CPUs that they may use were busy, while others were idle.
    Affinity,
    /// CPUs were idle: each wait was short, or all CPUs were busy for short times.
    Bursts,
    /// All CPUs were busy, and the hypervisor had taken much of their time.
    Steal,
    /// All CPUs were busy, most of all with processes that are not recorded.
    Others,
    /// All CPUs were busy, most of all with the recorded processes.
    Own,
}

/// A published or measured fact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Title of the report, manual or measurement.
    pub report: String,
    /// What it says, with figures.
    pub figure: String,
}

/// What a rule looks at.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Time by stack, added up over a pool or a process.
    #[default]
    Stacks,
    /// Single threads: the share of each thread's observed time in the rule's states.
    Threads,
    /// Threads of a pool compared with each other: one does much more than the mean.
    Imbalance,
    /// Processes of one class compared with each other, by state, kind of work and lock.
    LikeProcesses,
    /// Limits of control groups, by what the kernel counted of them during the recording.
    Limit,
    /// Threads that somebody still keeps from running at the end of the recording.
    Stopped,
    /// Threads that wait for each other's locks in a circle.
    Deadlock,
}

/// What time a rule counts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// What the rule looks at.
    pub kind: Kind,
    /// With `kind = "limit"`: which limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<GroupLimit>,
    /// Globs on the process's name; empty: every process.
    pub processes: Vec<String>,
    /// Globs on the pool's name; empty: every pool.
    pub pools: Vec<String>,
    /// Globs on the pool's name: these are left out.
    pub exclude_pools: Vec<String>,
    /// States that count; empty: all but idle.
    pub states: Vec<State>,
    /// Time counts if one of these matches; empty: all time counts.
    pub when: Vec<Pattern>,
    /// Time does not count if one of these matches.
    pub unless: Vec<Pattern>,
    /// How the evidence is drawn.
    pub evidence: Show,
    /// For `evidence = "sites"`: frames to pass over from the leaf on.
    pub skip: Vec<FrameTest>,
}

/// A limit of a control group.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupLimit {
    /// `cpu.max`, `cpu.cfs_quota_us`: percent of the periods in which it was throttled.
    CpuQuota,
    /// `io.max`, `blkio.throttle.*`: percent of the limit that was used.
    BlockIo,
    /// `memory.high`: times a second that it held a thread up, in percent of once a second.
    MemoryHigh,
    /// `memory.max`, `memory.limit_in_bytes`: times a second that memory was needed at it, in percent of once a second.
    MemoryMax,
}

/// A test of one frame; all keys that are present must hold. In a list an item that is no
/// pattern is an error, so that an empty test cannot match everything.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrameTest {
    /// Regular expressions searched for in the function's full demangled name; one must match.
    pub function: Vec<String>,
    /// Globs on the file name of its module (`libc.so*`, `[kernel]`); one must match.
    pub module: Vec<String>,
}

/// A test of a stack and its wait; all keys that are present must hold.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pattern {
    /// As in [`FrameTest`]: some frame of the stack must match.
    pub function: Vec<String>,
    /// As in [`FrameTest`], for the same frame as `function`.
    pub module: Vec<String>,
    /// That frame is among this many leaf-most ones (1: the leaf); 0: anywhere.
    pub leaf_within: u32,
    /// That frame was called, at any distance, by a frame that matches this.
    pub below: Option<FrameTest>,
    /// That frame is at most this many calls away (1: the direct caller); 0: at any distance.
    pub below_within: u32,
    /// The thread waits in one of these system calls (x86-64 numbers).
    pub syscalls: Vec<u32>,
    /// The thread waits outside every system call, and has a user stack.
    pub outside_syscall: bool,
}

impl Pattern {
    /// Whether it tests a frame, and not the wait alone.
    pub(crate) fn tests_frame(&self) -> bool {
        !(self.function.is_empty() && self.module.is_empty())
    }
}

/// How evidence is drawn.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Show {
    /// Inverted tree of the matched stacks, from the leaf.
    #[default]
    Leaf,
    /// From the matched frame towards the root: who called it.
    Callers,
    /// From the matched frame towards the leaf: what it called.
    Callees,
    /// From the first frame above the rule's `skip` frames towards the root.
    Sites,
    /// One line a thread, then the inverted tree.
    Threads,
}

/// What the percentage of a rule is of.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// On-CPU time.
    OnCpu,
    /// Time in every state but idle.
    NonIdle,
    /// All observed time.
    Wall,
}

impl Base {
    /// As printed: `on-CPU time`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on-CPU time",
            Self::NonIdle => "non-idle time",
            Self::Wall => "wall-clock time",
        }
    }

    /// Whether time in a state is part of it.
    pub(crate) fn includes(self, state: State) -> bool {
        match self {
            Self::OnCpu => state == State::OnCpu,
            Self::NonIdle => state.is_active(),
            Self::Wall => true,
        }
    }
}

/// Which pools a rule adds up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Each pool by itself.
    #[default]
    Pool,
    /// All pools of a process together.
    Process,
}

/// When counted time is a finding: the low end of its 95 % interval must reach the threshold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// What `percent` is of. With `kind = "threads"` it must be `wall`.
    pub of: Base,
    /// Over what time is added up.
    #[serde(default)]
    pub scope: Scope,
    /// Least share, percent of the base; with `kind = "like-processes"` the least difference from the median,
    /// percent of it.
    pub percent: f64,
    /// Least time, percent of the recording's length (of one core, for on-CPU time).
    #[serde(default = "default_min_wall_percent")]
    pub min_wall_percent: f64,
    /// With `kind = "imbalance"`: least counted share of the busiest thread's time, in times that of
    /// the pool's threads together.
    #[serde(default = "default_max_over_mean")]
    pub max_over_mean: f64,
    /// Why these figures.
    pub why: String,
}

fn default_min_wall_percent() -> f64 {
    1.0
}

fn default_max_over_mean() -> f64 {
    1.5
}
