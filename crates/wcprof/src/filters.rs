//! Flags that choose a part of a trace: which time, threads and stacks.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use globset::{Glob, GlobSet};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{
    Around, FilterError, FunctionFilter, FunctionName, Relation, ThreadFilter, View,
};
use wcprof_text::{and_more, parse_time, terminal_name};
use wcprof_types::TimeNs;

use crate::failure::Failure;

/// A part of the recording's time and threads.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "A part of the trace")]
pub(crate) struct PartArgs {
    /// Start of the window since the start of the recording: 3s, 500ms
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) from: Option<Duration>,
    /// End of the window
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    pub(crate) to: Option<Duration>,
    /// Only threads whose name or pool matches
    #[arg(long, value_name = "GLOB")]
    pub(crate) threads: Vec<String>,
    /// Only pools whose name matches
    #[arg(long, value_name = "GLOB")]
    pub(crate) pools: Vec<String>,
    /// Only processes whose name or pid matches; can be given several times
    #[arg(long, value_name = "GLOB|PID", hide_short_help = true)]
    pub(crate) processes: Vec<String>,
    /// Only processes whose control group path matches; can be given several times
    #[arg(long, value_name = "GLOB", hide_short_help = true)]
    pub(crate) cgroups: Vec<String>,
}

/// States and functions.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "A part of the trace")]
pub(crate) struct StackArgs {
    /// Only these states, as in on-cpu,lock,disk
    ///
    /// on-cpu, guest, runnable, lock, disk, net, throttle, sleep, idle, blocked, steal/irq, unknown, place-unknown, vm-exit, stopped.
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<State>,
    /// Only stacks with a function whose name matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) focus: Option<String>,
    /// Leave out the frames of functions whose name matches; their time stays with their callers
    #[arg(long, value_name = "REGEX", hide_short_help = true)]
    pub(crate) hide: Option<String>,
}

impl PartArgs {
    /// The time window, if one is given.
    pub(crate) fn window(&self) -> Result<Option<(TimeNs, TimeNs)>, Failure> {
        if self.from.is_none() && self.to.is_none() {
            return Ok(None);
        }
        let ns = |time: Duration| TimeNs(time.as_nanos() as u64);
        let from = self.from.map(ns).unwrap_or_default();
        // A day is the longest recording.
        let to = self.to.map(ns);
        let to = to.unwrap_or(TimeNs(wcprof_trace::limits::MAX_TIME_NS));
        if from >= to {
            let error = anyhow::anyhow!("the time window ends before it begins");
            return Err(Failure::usage(error).hint(
                "--from must be less than --to; both count from the start of the recording",
            ));
        }
        Ok(Some((from, to)))
    }

    /// Which threads.
    pub(crate) fn thread_filter(&self) -> Result<ThreadFilter, Failure> {
        Ok(ThreadFilter {
            threads: globs(&self.threads)?,
            pools: globs(&self.pools)?,
            processes: globs(&self.processes)?,
            cgroups: globs(&self.cgroups)?,
        })
    }

    /// Refuses a window in which nothing was recorded.
    pub(crate) fn check(&self, profile: &Profile) -> Result<(), Failure> {
        if !profile.time.is_window || profile.duration_ns() > 0 {
            return Ok(());
        }
        let seconds = profile.stats.duration.0 as f64 / 1e9;
        let error = anyhow::anyhow!("nothing was recorded in the time window");
        let hint = format!("the recording is {seconds:.1} s long; --from counts from its start");
        Err(Failure::usage(error).hint(hint))
    }
}

impl StackArgs {
    /// Adds the filters to a view.
    pub(crate) fn apply(&self, view: &mut View) -> Result<(), Failure> {
        if !self.state.is_empty() {
            view.states = Some(self.state.clone());
            view.idle |= self.state.iter().any(|state| state.is_idle());
        }
        let compile = |pattern: &Option<String>| {
            let filter = pattern.as_deref().map(FunctionFilter::new);
            filter.transpose().map_err(bad_filter)
        };
        view.focus = compile(&self.focus)?;
        view.hide = compile(&self.hide)?;
        Ok(())
    }
}

/// The function that a tree is around; fails when the profile has none of this name.
pub(crate) fn around(profile: &Profile, relation: Relation, name: &str) -> Result<Around, Failure> {
    const MOST: usize = 5;
    let function = FunctionName(name.to_owned());
    if profile.functions.iter().any(|f| function.matches(&f.name)) {
        return Ok(Around { relation, function });
    }
    let wanted = name.to_lowercase();
    let names = profile.functions.iter().map(|f| f.name.as_str());
    let like: BTreeSet<&str> = names
        .filter(|f| f.to_lowercase().contains(&wanted))
        .collect();
    let error = anyhow::anyhow!("no function is named `{name}` in this trace");
    let shown: Vec<_> = like.iter().take(MOST).map(|f| terminal_name(f)).collect();
    let hint = match shown.as_slice() {
        [] => "wcprof report --functions lists them; the name is taken without arguments, \
               and may lack what is before a `::`"
            .to_owned(),
        shown => {
            let more = and_more(like.len().saturating_sub(MOST));
            format!("names that contain it: {}{more}", shown.join("; "))
        }
    };
    Err(Failure::usage(error).hint(hint))
}

const GLOBS: &str = "globs know *, ?, [a-z] and {a,b}";

pub(crate) fn glob(pattern: &str) -> Result<Glob, Failure> {
    Glob::new(pattern).map_err(|e| Failure::usage(e).hint(GLOBS))
}

/// Globs of which one must match; `None` for no globs.
pub fn globs(patterns: &[String]) -> Result<Option<GlobSet>, Failure> {
    wcprof_profile::globs(patterns).map_err(bad_filter)
}

fn bad_filter(error: FilterError) -> Failure {
    let hint = match &error {
        FilterError::Glob(_) => GLOBS,
        FilterError::Regex(_) => "a backslash takes its meaning from a sign: `operator\\(\\)`",
    };
    Failure::usage(error).hint(hint)
}
