//! The figures that every report begins with.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use wcprof_profile::HostAccounts;
use wcprof_profile::model::{FunctionId, Profile, State, process_names};
use wcprof_text::{and_more, count, duration, percent, terminal_name};
use wcprof_types::StackEnd;
use wcprof_types::accounts::OtherProcesses;

use crate::figures::at_a_time;
use crate::stopped::{Stopped, stopped};
use crate::unnamed::{MUCH, UnnamedCpu};

/// What was recorded, where the threads' time went, and what is missing.
#[derive(Clone, PartialEq, Debug)]
pub struct Headline<'p> {
    pub(crate) profile: &'p Profile,
    /// Processes, each as `name (pid N)`, with the name that a user gave (`osd.3`); not escaped.
    pub(crate) processes: Vec<String>,
    /// Threads seen.
    pub(crate) n_threads: usize,
    /// Samples: thread observations and timer samples.
    pub(crate) n_samples: u64,
    /// The timer samples among them: of running threads, between ticks.
    pub(crate) n_timer_samples: u64,
    /// All threads' time by state, ns, in the order of [`State::ALL`].
    pub(crate) states: [u64; State::ALL.len()],
    /// Which processes could not run for a time because somebody stopped them.
    pub(crate) stopped: Vec<Stopped>,
    /// Processes that were not recorded, of all hosts; `None` where nobody looked.
    pub(crate) others: Option<OtherProcesses>,
    /// CPU time in functions without a name.
    pub(crate) unnamed: UnnamedCpu,
    /// What is missing.
    pub losses: Losses,
}

/// `30.0 s`, or `30.0 s recorded over 125 s` of a recording with gaps; of what has no time, how many snapshots it is of.
pub(crate) fn length_text(profile: &Profile, recorded_ns: u64, extent_ns: u64) -> String {
    match profile.header.n_snapshots as usize {
        0 if recorded_ns == extent_ns => duration(recorded_ns),
        0 => format!(
            "{} recorded over {}",
            duration(recorded_ns),
            duration(extent_ns)
        ),
        n => count(n, "snapshot"),
    }
}

/// Least share of what is missing that is said, percent.
const MIN_MISSING: f64 = 0.05;

/// What a recording lacks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Losses {
    /// Stack copies dropped because the thread ran meanwhile.
    pub n_torn: u64,
    /// Ticks that began late, and those left out.
    pub n_late: u64,
    /// Samples that the kernel dropped, and batches that wcprof dropped.
    pub n_lost: u64,
    /// Samples with a stack, but for those of threads that are idle or look like it: these are not shown, and are the most.
    pub n_stacks: u64,
    /// Samples among them whose stack does not reach the thread's root, by reason.
    pub truncated: BTreeMap<StackEnd, u64>,
    /// Frames of these samples.
    pub n_frames: u64,
    /// Those without a name.
    pub n_unresolved: u64,
    /// Why the recording ended, when it did not end cleanly; not escaped.
    pub cut: Option<String>,
}

impl<'p> Headline<'p> {
    /// Collects the figures.
    pub fn new(profile: &'p Profile) -> Self {
        let mut states = [0_u64; State::ALL.len()];
        for row in &profile.rows {
            let sum = &mut states[row.state as usize];
            *sum = sum.saturating_add(row.weight);
        }
        let of_threads = profile
            .threads
            .iter()
            .map(|t| (t.pid, profile.process_title(t)));
        let mut processes = process_names(of_threads);
        if processes.is_empty() {
            // They ended before anything of them was seen.
            let known = profile.processes.iter();
            processes = process_names(known.map(|p| (p.pid, p.title.as_str())));
        }
        let (stats, threads) = (&profile.stats, profile.threads.iter());
        Self {
            profile,
            processes,
            n_threads: threads.filter(|t| t.tid.0 != 0).count(),
            n_timer_samples: stats.n_timer_samples,
            n_samples: stats.n_observations.saturating_add(stats.n_timer_samples),
            states,
            stopped: stopped(profile),
            others: others(profile),
            unnamed: UnnamedCpu::new(profile),
            losses: Losses::new(profile),
        }
    }

    /// Whether so much CPU time has no name that it is said, with what would give it names.
    pub fn is_unnamed(&self) -> bool {
        self.unnamed.share() >= MUCH
    }

    /// All threads' time, ns.
    pub fn observed_ns(&self) -> u64 {
        self.states.iter().fold(0, |sum, w| sum.saturating_add(*w))
    }

    /// Threads at a time that had nothing to do.
    pub fn idle_at_a_time(&self) -> f64 {
        let idle = [State::Idle, State::PlaceUnknown].map(|state| self.states[state as usize]);
        at_a_time(self.profile, idle.into_iter().fold(0, u64::saturating_add))
    }

    /// The headline as lines of text, escaped for a terminal.
    pub fn text(&self) -> String {
        let shown = self.processes.iter().take(3).map(|p| terminal_name(p));
        let mut out = format!(
            "{}{}: {}",
            shown.collect::<Vec<_>>().join(", "),
            and_more(self.processes.len().saturating_sub(3)),
            self.recorded(),
        );
        out += &self.losses.text();
        let (own, recorded) = (self.profile.stats.own_cpu_ns, self.profile.time.recorded_ns);
        if own > 0 && recorded > 0 {
            let (cpu, part) = (duration(own), percent(own, recorded));
            out += &format!("wcprof itself: {cpu} CPU ({part:.1} % of one core)\n");
        }
        for warning in self.warnings() {
            out += &format!("{warning}\n");
        }
        out
    }

    /// How much was recorded how, and the shares of states, as lines of text.
    pub(crate) fn recorded(&self) -> String {
        let (header, stats) = (&self.profile.header, &self.profile.stats);
        let rate = match header.rate_hz {
            0 => String::new(),
            hz => format!(" at {hz} Hz{}", self.true_rate().unwrap_or_default()),
        };
        let timer = match self.n_timer_samples {
            0 => String::new(),
            n => format!(" and {n} of running threads"),
        };
        let n_samples = self.n_samples.saturating_sub(self.n_timer_samples) as usize;
        let mut out = format!(
            "{}, {}, {}{rate}{timer}, {}\n",
            length_text(self.profile, self.profile.whole_ns(), stats.duration.0),
            count(self.n_threads, "thread"),
            count(n_samples, "sample"),
            terminal_name(&recorded_by(&header.engine)),
        );
        if let Some((from, to)) = self.profile.time.window_ns() {
            let (from, to) = (duration(from), duration(to));
            out += &format!("window: {from} to {to}; what is missing is of the whole recording\n");
        }
        out += &self.shares();
        self.stopped
            .iter()
            .for_each(|stopped| out += &format!("{}\n", stopped.text()));
        out
    }

    /// Whether the recording can be relied on, in a line: what is missing, and what wcprof took.
    pub(crate) fn quality(&self) -> String {
        if self.profile.threads.is_empty() {
            return "quality poor: no thread was seen".to_owned();
        }
        let losses = &self.losses;
        let part = |n: u64| percent(n, self.n_samples);
        // Names of what is not idle and of what ran differ in little, unless the latter are missing.
        let unnamed = match self.is_unnamed() {
            true => self.unnamed.share(),
            false => 0.0,
        };
        let shares = [
            ("samples lost", part(losses.n_lost), 0.0),
            ("stack copies torn", part(losses.n_torn), 5.0),
            ("ticks late", percent(losses.n_late, self.n_due()), 5.0),
            (
                "stacks truncated",
                percent(losses.n_truncated(), losses.n_stacks),
                5.0,
            ),
            (
                "frames without a name",
                percent(losses.n_unresolved, losses.n_frames),
                5.0,
            ),
            ("CPU time without a name", unnamed, MUCH),
        ];
        let is_good = losses.cut.is_none() && shares.iter().all(|(_, share, most)| share <= most);
        let verdict = if is_good { "ok" } else { "poor" };
        let seen = shares.iter().filter(|(_, share, _)| *share >= MIN_MISSING);
        let seen = seen.map(|(what, share, most)| {
            let reason = losses.main_truncation();
            let reason = reason.filter(|_| *what == "stacks truncated" && share > most);
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            format!("{share:.1} % of {what}{reason}")
        });
        let seen: Vec<String> = seen.collect();
        let missing = match seen.as_slice() {
            [] => "nothing is missing".to_owned(),
            seen => seen.join(", "),
        };
        let (own, recorded) = (self.profile.stats.own_cpu_ns, self.profile.time.recorded_ns);
        let own = match own > 0 && recorded > 0 {
            true => format!("; wcprof took {:.1} % of a core", percent(own, recorded)),
            false => String::new(),
        };
        let others = self.others.as_ref().map_or_else(String::new, others_text);
        let rate = self.true_rate();
        let rate = rate.map_or_else(String::new, |rate| {
            format!("; {} Hz{rate}", self.profile.header.rate_hz)
        });
        format!("quality {verdict}: {missing}{own}{rate}{others}")
    }

    /// Ticks that there should have been.
    fn n_due(&self) -> u64 {
        let stats = &self.profile.stats;
        stats.n_ticks.saturating_add(stats.losses.n_missed)
    }

    /// What became of the rate that was asked for, if it was lowered to keep to the CPU limit.
    fn true_rate(&self) -> Option<String> {
        let stats = &self.profile.stats;
        let lowest = stats.rate_changes.iter().map(|(_, hz)| *hz).min()?;
        let seconds = self.profile.whole_ns() as f64 / 1e9;
        let mean = stats.n_ticks as f64 / seconds.max(1e-3);
        let digits = usize::from(mean < 9.95);
        Some(format!(
            ", lowered to {lowest} Hz to keep to the CPU limit, {mean:.digits$} Hz in the mean"
        ))
    }

    /// What a reader must know before any figure: that the recording was cut short, and its notes.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let cut = self.losses.cut.iter();
        let cut =
            cut.map(|reason| format!("the recording was cut short: {}", terminal_name(reason)));
        let notes = self.profile.header.notes.iter();
        let notes = notes.map(|note| format!("note: {}", terminal_name(note)));
        cut.chain(notes).chain(self.unnamed.text()).collect()
    }

    fn shares(&self) -> String {
        let n = |ns: u64| at_a_time(self.profile, ns);
        let share =
            |name: &str, state: State| format!("{name} {:.2}", n(self.states[state as usize]));
        let seen = |state: &State| self.states[*state as usize] > 0;
        let waits = State::ALL.into_iter().filter(|s| s.is_waiting());
        let waiting = waits.clone().map(|s| self.states[s as usize]);
        let blocked = n(waiting.fold(0, u64::saturating_add));
        let parts = waits.filter(seen).map(|state| match state {
            State::Blocked => share("other", state),
            state => share(state.name(), state),
        });
        let parts: Vec<String> = parts.collect();
        let parts = match parts.as_slice() {
            [] => String::new(),
            parts => format!(" ({})", parts.join(", ")),
        };
        let rare = [
            State::PlaceUnknown,
            State::Guest,
            State::VmExit,
            State::StealIrq,
            State::Unknown,
            State::Stopped,
        ];
        let rare = rare.into_iter();
        let rare = rare.filter(seen).map(|state| share(state.name(), state));
        let mut all = vec![
            share("on-CPU", State::OnCpu),
            share("runnable", State::Runnable),
            format!("blocked {blocked:.2}{parts}"),
            share("idle", State::Idle),
        ];
        all.extend(rare);
        format!("threads on average: {}\n", all.join(", "))
    }
}

/// What is known of processes that were not recorded, names aside: numbers of all hosts together.
fn others(profile: &Profile) -> Option<OtherProcesses> {
    let mut hosts: Vec<&Arc<HostAccounts>> = Vec::new();
    for process in &profile.processes {
        if !hosts
            .iter()
            .any(|host| Arc::ptr_eq(host, &process.accounts))
        {
            hosts.push(&process.accounts);
        }
    }
    let changes = hosts.into_iter().filter_map(|host| host.change.as_ref());
    let others = changes.map(|change| &change.others);
    let others = others.filter(|others| others.is_read() || others.are_hidden);
    others
        .map(|others| OtherProcesses {
            by_name: Vec::new(),
            ..*others
        })
        .reduce(|sum, others| OtherProcesses {
            n_read: sum.n_read.saturating_add(others.n_read),
            n_unread: sum.n_unread.saturating_add(others.n_unread),
            are_hidden: sum.are_hidden || others.are_hidden,
            ..sum
        })
}

/// `; 12 of 190 other processes were not read`; empty where all were.
fn others_text(others: &OtherProcesses) -> String {
    let all = others.n_read.saturating_add(others.n_unread);
    let mut text = match others.n_unread {
        0 => String::new(),
        n => format!("; {n} of {all} other processes were not read"),
    };
    if others.are_hidden {
        text += "; processes of other users are hidden from wcprof (hidepid)";
    }
    text
}

impl Losses {
    fn new(profile: &Profile) -> Self {
        let is_unnamed = |f: &&FunctionId| !profile.functions[f.0 as usize].resolved;
        let stacks = profile.stacks.iter().map(|stack| {
            let n_unnamed = stack.frames.iter().filter(is_unnamed).count();
            (stack.frames.len() as u64, n_unnamed as u64, stack.end)
        });
        let stacks: Vec<(u64, u64, StackEnd)> = stacks.collect();
        let (mut n_stacks, mut n_frames, mut n_unresolved) = (0_u64, 0_u64, 0_u64);
        let mut truncated = BTreeMap::new();
        for row in profile.rows.iter().filter(|row| !row.state.is_idle()) {
            if let Some(stack) = row.stack {
                let (all, unnamed, end) = stacks[stack.0 as usize];
                n_stacks = n_stacks.saturating_add(row.n_samples);
                n_frames = n_frames.saturating_add(row.n_samples.saturating_mul(all));
                n_unresolved = n_unresolved.saturating_add(row.n_samples.saturating_mul(unnamed));
                if end.is_truncated() && row.n_samples > 0 {
                    let n = truncated.entry(end).or_insert(0_u64);
                    *n = n.saturating_add(row.n_samples);
                }
            }
        }
        let stats = &profile.stats;
        Self {
            n_torn: stats.losses.n_torn,
            n_late: stats.losses.n_late.saturating_add(stats.losses.n_missed),
            n_lost: stats
                .losses
                .n_lost
                .saturating_add(stats.losses.n_dropped_batches),
            n_stacks,
            truncated,
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

    /// Why most of them do not.
    fn main_truncation(&self) -> Option<&'static str> {
        let most = self.truncated.iter().max_by_key(|(_, n)| **n);
        most.map(|(end, _)| end.reason())
    }

    fn text(&self) -> String {
        let reasons = self.truncated.iter();
        let reasons = reasons.map(|(end, n)| format!("{} {n}", end.reason()));
        let reasons = match reasons.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            reasons => format!(" ({})", reasons.join(", ")),
        };
        format!(
            "missing: {} torn, {} late, {} lost, {} truncated{reasons}, unresolved frames {:.1} %\n",
            self.n_torn,
            self.n_late,
            self.n_lost,
            self.n_truncated(),
            percent(self.n_unresolved, self.n_frames),
        )
    }
}

/// What recorded a trace: `engine bpf`, or `imported from perf.data`.
pub fn recorded_by(engine: &str) -> Cow<'_, str> {
    match engine.starts_with("imported ") {
        true => engine.into(),
        false => format!("engine {engine}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what is said of processes that were not read, and that nothing is where all were.
    #[test]
    fn other_processes() {
        let text = |n_read, n_unread, are_hidden| {
            others_text(&OtherProcesses {
                n_read,
                n_unread,
                are_hidden,
                ..OtherProcesses::default()
            })
        };
        assert_eq!(text(4, 0, false), "");
        assert_eq!(
            text(4, 95, false),
            "; 95 of 99 other processes were not read"
        );
        let hidden = text(4, 0, true);
        assert!(hidden.contains("hidden from wcprof"), "{hidden}");
    }
}
