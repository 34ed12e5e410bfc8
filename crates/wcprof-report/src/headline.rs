//! The figures that every report begins with.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use wcprof_profile::model::{FunctionId, Profile, State};
use wcprof_text::{and_more, count, duration, percent, terminal_name};
use wcprof_types::StackEnd;

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
        let mut states = [0_u64; State::ALL.len()];
        for row in &profile.rows {
            let sum = &mut states[row.state as usize];
            *sum = sum.saturating_add(row.weight);
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
        let named = |(pid, title)| format!("{title} (pid {pid})");
        let (stats, time) = (&profile.stats, &profile.time);
        let seen = profile.threads.iter().filter(|t| t.tid.0 != 0);
        Self {
            processes: processes.into_iter().map(named).collect(),
            duration_ns: stats.duration.0,
            window_ns: time.is_window.then_some((time.start.0, time.end.0)),
            n_threads: seen.count() as u64,
            n_samples: stats.n_observations.saturating_add(stats.n_timer_samples),
            engine: profile.header.engine.clone(),
            rate_hz: profile.header.rate_hz,
            states,
            losses: Losses::new(profile),
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

    /// One line on how complete the recording is.
    pub fn quality(&self) -> String {
        let losses = &self.losses;
        let torn = percent(losses.n_torn, self.n_samples);
        let truncated = percent(losses.truncated.values().sum(), self.n_samples);
        let unresolved = percent(losses.n_unresolved, losses.n_frames);
        let is_ok = losses.n_lost == 0 && torn < 5.0 && truncated < 5.0 && unresolved < 20.0;
        let verdict = if is_ok { "ok" } else { "reduced" };
        format!(
            "quality {verdict}: {} lost, {torn:.2} % torn, {truncated:.2} % truncated, {unresolved:.1} % of frames without a name",
            losses.n_lost,
        )
    }

    /// The headline as lines of text, escaped for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let shown = self.processes.iter().take(3).map(|p| terminal_name(p));
        let rate = match self.rate_hz {
            0 => String::new(),
            hz => format!(" at {hz} Hz"),
        };
        writeln!(
            out,
            "{}{}: {}, {}, {}{rate}, {}",
            shown.collect::<Vec<_>>().join(", "),
            and_more(self.processes.len().saturating_sub(3)),
            duration(self.duration_ns),
            count(self.n_threads as usize, "thread"),
            count(self.n_samples as usize, "sample"),
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
        let waits = State::ALL.into_iter().filter(|s| s.is_waiting());
        let waiting = waits.clone().map(|s| self.states[s as usize]);
        write!(
            out,
            "thread time: on-CPU {:.1} %, runnable {:.1} %, blocked {:.1} %",
            self.share(State::OnCpu),
            self.share(State::Runnable),
            percent(waiting.fold(0, u64::saturating_add), self.observed_ns()),
        )?;
        let seen = waits.filter(|s| self.states[*s as usize] > 0);
        let part = |state: State| match state {
            State::Blocked => format!("other {:.1} %", self.share(state)),
            state => format!("{} {:.1} %", state.name(), self.share(state)),
        };
        let parts: Vec<String> = seen.map(part).collect();
        if !parts.is_empty() {
            write!(out, " ({})", parts.join(", "))?;
        }
        write!(out, ", idle {:.1} %", self.share(State::Idle))?;
        for state in [
            State::PlaceUnknown,
            State::Guest,
            State::StealIrq,
            State::Unknown,
        ] {
            if self.states[state as usize] > 0 {
                write!(out, ", {} {:.1} %", state.name(), self.share(state))?;
            }
        }
        writeln!(out)
    }
}

impl Losses {
    fn new(profile: &Profile) -> Self {
        let is_unnamed = |f: &&FunctionId| !profile.functions[f.0 as usize].resolved;
        let unnamed_of_stack: Vec<u64> = profile
            .stacks
            .iter()
            .map(|stack| stack.frames.iter().filter(is_unnamed).count() as u64)
            .collect();
        let (mut n_frames, mut n_unresolved) = (0_u64, 0_u64);
        for row in &profile.rows {
            if let Some(stack) = row.stack.map(|id| id.0 as usize) {
                let of_all = |n: u64| row.n_samples.saturating_mul(n);
                let len = profile.stacks[stack].frames.len() as u64;
                n_frames = n_frames.saturating_add(of_all(len));
                n_unresolved = n_unresolved.saturating_add(of_all(unnamed_of_stack[stack]));
            }
        }
        let stats = &profile.stats;
        let ends = stats.ends.iter().map(|(end, n)| (*end, *n));
        Self {
            n_torn: stats.n_torn,
            n_late: stats.n_late.saturating_add(stats.n_missed),
            n_lost: stats.n_lost.saturating_add(stats.n_dropped_batches),
            truncated: ends
                .filter(|(end, n)| end.is_truncated() && *n > 0)
                .collect(),
            n_frames,
            n_unresolved,
            cut: (!stats.complete).then(|| stats.end_reason.clone()),
        }
    }

    /// Stacks that do not reach the thread's root.
    pub fn n_truncated(&self) -> u64 {
        let counts = self.truncated.values();
        counts.fold(0, |sum, n| sum.saturating_add(*n))
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
            let reasons = self.truncated.iter();
            let reasons: Vec<String> = reasons
                .map(|(end, n)| format!("{} {n}", end.reason()))
                .collect();
            write!(out, " ({})", reasons.join(", "))?;
        }
        let unresolved = percent(self.n_unresolved, self.n_frames);
        writeln!(out, ", unresolved frames {unresolved:.1} %")?;
        if let Some(reason) = &self.cut {
            let reason = terminal_name(reason);
            writeln!(out, "the recording was cut short: {reason}")?;
        }
        Ok(())
    }
}

/// What recorded a trace: `engine bpf`, or `imported from perf.data`.
pub fn recorded_by(engine: &str) -> Cow<'_, str> {
    match engine.starts_with("imported ") {
        true => engine.into(),
        false => format!("engine {engine}").into(),
    }
}
