//! The figures that every report begins with.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use wcprof_profile::model::{Profile, State};
use wcprof_types::StackEnd;

use crate::escape::terminal_name;
use crate::units::{count, duration, percent};

/// What was recorded, where the threads' time went, and what is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Headline {
    /// Processes, each as `name (pid N)`, with the name that a user gave (`osd.3`); not escaped.
    pub processes: Vec<String>,
    /// Length of the recording, ns.
    pub duration_ns: u64,
    /// The part of it that the states are about, ns since it began; `None` for all of it.
    pub window_ns: Option<(u64, u64)>,
    /// Threads seen.
    pub n_threads: u64,
    /// Samples: thread observations and timer samples.
    pub n_samples: u64,
    /// `bpf`, `procfs` or `procfs-only`.
    pub engine: String,
    /// Ticks a second that were asked for.
    pub rate_hz: u32,
    /// All threads' time by state, ns, in the order of [`State::ALL`].
    pub states: [u64; State::ALL.len()],
    /// What is missing.
    pub losses: Losses,
    /// CPU time that wcprof itself used, ns; of a merged trace, in all recordings.
    pub own_cpu_ns: u64,
    /// What that is a share of, ns: the lengths of all recordings.
    pub recorded_ns: u64,
    /// Remarks of the recorder; not escaped.
    pub notes: Vec<String>,
}

/// What a recording lacks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Losses {
    /// Stack copies dropped because the thread ran meanwhile.
    pub n_torn: u64,
    /// Ticks that began late, and those left out.
    pub n_late: u64,
    /// Samples that the kernel dropped, and batches that wcprof dropped.
    pub n_lost: u64,
    /// Stacks that do not reach the thread's root, by reason.
    pub truncated: BTreeMap<StackEnd, u64>,
    /// Frames of all samples.
    pub n_frames: u64,
    /// Those without a name.
    pub n_unresolved: u64,
    /// Why the recording ended, when it did not end cleanly; not escaped.
    pub cut: Option<String>,
}

impl Headline {
    /// Collects the figures.
    pub fn new(profile: &Profile) -> Self {
        let stats = &profile.stats;
        let mut states = [0_u64; State::ALL.len()];
        let (mut n_frames, mut n_unresolved) = (0_u64, 0_u64);
        let unresolved: Vec<u64> = profile
            .stacks
            .iter()
            .map(|stack| {
                let unnamed = |f: &&wcprof_profile::model::FunctionId| {
                    !profile
                        .functions
                        .get(f.0 as usize)
                        .is_some_and(|f| f.resolved)
                };
                stack.frames.iter().filter(unnamed).count() as u64
            })
            .collect();
        for row in &profile.rows {
            let sum = &mut states[row.state as usize];
            *sum = sum.saturating_add(row.weight);
            let at = row.stack.map(|id| id.0 as usize);
            if let Some((stack, unnamed)) =
                at.and_then(|at| Some((profile.stacks.get(at)?, unresolved.get(at)?)))
            {
                let samples = row.n_samples;
                n_frames =
                    n_frames.saturating_add(samples.saturating_mul(stack.frames.len() as u64));
                n_unresolved = n_unresolved.saturating_add(samples.saturating_mul(*unnamed));
            }
        }
        let mut processes: BTreeSet<_> = profile
            .threads
            .iter()
            .map(|t| (t.pid, profile.process_title(t)))
            .collect();
        if processes.is_empty() {
            // They ended before anything of them was seen.
            let known = profile.processes.iter();
            processes.extend(known.map(|p| (p.pid, p.title.as_str())));
        }
        Self {
            processes: processes
                .into_iter()
                .map(|(pid, title)| format!("{title} (pid {pid})"))
                .collect(),
            duration_ns: stats.duration.0,
            window_ns: profile
                .time
                .is_window
                .then_some((profile.time.start.0, profile.time.end.0)),
            n_threads: profile.threads.iter().filter(|t| t.tid.0 != 0).count() as u64,
            n_samples: stats.n_observations.saturating_add(stats.n_timer_samples),
            engine: profile.header.engine.clone(),
            rate_hz: profile.header.rate_hz,
            states,
            losses: Losses {
                n_torn: stats.n_torn,
                n_late: stats.n_late.saturating_add(stats.n_missed),
                n_lost: stats.n_lost.saturating_add(stats.n_dropped_batches),
                truncated: stats
                    .ends
                    .iter()
                    .filter(|(end, n)| end.is_truncated() && **n > 0)
                    .map(|(end, n)| (*end, *n))
                    .collect(),
                n_frames,
                n_unresolved,
                cut: (!stats.complete).then(|| stats.end_reason.clone()),
            },
            own_cpu_ns: stats.own_cpu_ns,
            recorded_ns: profile.time.recorded_ns,
            notes: profile.header.notes.clone(),
        }
    }

    /// All threads' time, ns.
    pub fn observed_ns(&self) -> u64 {
        self.states.iter().fold(0, |sum, w| sum.saturating_add(*w))
    }

    /// A state's share of all threads' time, percent.
    pub fn share(&self, state: State) -> f64 {
        percent(self.states[state as usize], self.observed_ns())
    }

    /// The headline as lines of text, escaped for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let shown: Vec<_> = self
            .processes
            .iter()
            .take(3)
            .map(|p| terminal_name(p))
            .collect();
        let more = self.processes.len().saturating_sub(3);
        write!(out, "{}", shown.join(", "))?;
        if more > 0 {
            write!(out, " and {more} more")?;
        }
        writeln!(
            out,
            ": {}, {}, {}{}, {}",
            duration(self.duration_ns),
            count(self.n_threads, "thread"),
            count(self.n_samples, "sample"),
            match self.rate_hz {
                0 => String::new(),
                hz => format!(" at {hz} Hz"),
            },
            terminal_name(&recorded_by(&self.engine)),
        )?;
        if let Some((from, to)) = self.window_ns {
            writeln!(
                out,
                "window: {} to {}; what is missing is of the whole recording",
                duration(from),
                duration(to)
            )?;
        }
        self.write_shares(out)?;
        self.losses.write(out)?;
        if self.own_cpu_ns > 0 && self.recorded_ns > 0 {
            writeln!(
                out,
                "wcprof itself: {} CPU ({:.1} % of one core)",
                duration(self.own_cpu_ns),
                percent(self.own_cpu_ns, self.recorded_ns)
            )?;
        }
        for note in &self.notes {
            writeln!(out, "note: {}", terminal_name(note))?;
        }
        Ok(())
    }

    fn write_shares(&self, out: &mut String) -> std::fmt::Result {
        let waits: Vec<State> = State::ALL.into_iter().filter(|s| s.is_waiting()).collect();
        let waiting: u64 = waits
            .iter()
            .fold(0, |sum, s| sum.saturating_add(self.states[*s as usize]));
        write!(
            out,
            "thread time: on-CPU {:.1} %, runnable {:.1} %, blocked {:.1} %",
            self.share(State::OnCpu),
            self.share(State::Runnable),
            percent(waiting, self.observed_ns()),
        )?;
        let parts: Vec<String> = waits
            .into_iter()
            .filter(|s| self.states[*s as usize] > 0)
            .map(|s| {
                let name = if s == State::Blocked {
                    "other"
                } else {
                    s.name()
                };
                format!("{name} {:.1} %", self.share(s))
            })
            .collect();
        if !parts.is_empty() {
            write!(out, " ({})", parts.join(", "))?;
        }
        write!(out, ", idle {:.1} %", self.share(State::Idle))?;
        for state in [State::Guest, State::StealIrq, State::Unknown] {
            if self.states[state as usize] > 0 {
                write!(out, ", {} {:.1} %", state.name(), self.share(state))?;
            }
        }
        writeln!(out)
    }
}

impl Losses {
    /// Stacks that do not reach the thread's root.
    pub fn n_truncated(&self) -> u64 {
        self.truncated
            .values()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        write!(
            out,
            "missing: {} torn, {} late, {} lost, {} truncated",
            self.n_torn,
            self.n_late,
            self.n_lost,
            self.n_truncated()
        )?;
        if !self.truncated.is_empty() {
            let reasons: Vec<String> = self
                .truncated
                .iter()
                .map(|(end, n)| format!("{} {n}", end.reason()))
                .collect();
            write!(out, " ({})", reasons.join(", "))?;
        }
        writeln!(
            out,
            ", unresolved frames {:.1} %",
            percent(self.n_unresolved, self.n_frames)
        )?;
        if let Some(reason) = &self.cut {
            writeln!(
                out,
                "the recording was cut short: {}",
                terminal_name(reason)
            )?;
        }
        Ok(())
    }
}
/// What recorded a trace: `engine bpf`, or `imported from perf.data`.
pub fn recorded_by(engine: &str) -> Cow<'_, str> {
    match engine.starts_with("imported ") {
        true => Cow::Borrowed(engine),
        false => Cow::Owned(format!("engine {engine}")),
    }
}
