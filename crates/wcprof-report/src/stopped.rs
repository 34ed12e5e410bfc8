//! A profile to what was stopped in it, by whom and for how long.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wcprof_profile::model::{Profile, State};
use wcprof_text::{duration, terminal_name};
use wcprof_types::StopCause;

/// Threads of a process that were stopped for a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stopped {
    /// Title and pid of the process; `None` where there is only one.
    process: Option<String>,
    cause: StopCause,
    /// Threads that were stopped for a time, and all of the process.
    n_threads: usize,
    n_all: usize,
    /// The time of the thread that was stopped for longest, and the length of the recording, ns.
    longest_ns: u64,
    recorded_ns: u64,
}

impl Stopped {
    /// Its line of the first screen, escaped for a terminal.
    pub(crate) fn text(&self) -> String {
        let process = self
            .process
            .as_deref()
            .map(|name| format!(" {}", terminal_name(name)));
        format!(
            "STOPPED{} {}: {} of {}, {} of {} threads",
            process.unwrap_or_default(),
            self.cause.text(),
            duration(self.longest_ns),
            duration(self.recorded_ns),
            self.n_threads,
            self.n_all,
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "process": self.process,
            "cause": self.cause.name(),
            "n_threads": self.n_threads,
            "longest_ns": self.longest_ns,
        })
    }
}

/// What was stopped, by process and cause.
pub(crate) fn stopped(profile: &Profile) -> Vec<Stopped> {
    let mut times: BTreeMap<(usize, StopCause), BTreeMap<usize, u64>> = BTreeMap::new();
    for row in profile
        .rows
        .iter()
        .filter(|row| row.state == State::Stopped)
    {
        let process = profile.threads[row.thread].process;
        let key = (process, profile.stop_cause(row));
        let time = times.entry(key).or_default().entry(row.thread).or_default();
        *time = time.saturating_add(row.weight);
    }
    let stopped = times.into_iter().map(|((process, cause), threads)| {
        let of_process = |thread: &&wcprof_profile::model::ProfileThread| {
            thread.process == process && thread.tid.0 != 0
        };
        Stopped {
            process: (profile.processes.len() > 1)
                .then(|| profile.processes.get(process))
                .flatten()
                .map(|p| format!("{} (pid {})", p.title, p.pid)),
            cause,
            n_threads: threads.len(),
            n_all: profile.threads.iter().filter(of_process).count(),
            longest_ns: threads.values().copied().max().unwrap_or_default(),
            recorded_ns: profile.duration_ns(),
        }
    });
    stopped.collect()
}
