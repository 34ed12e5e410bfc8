//! Threads that somebody still keeps from running at the end of a profile.
//!
//! What was stopped and let go on before is no finding: there is nothing to do about it any more.

use std::collections::BTreeMap;

use wcprof_profile::model::{Profile, State};
use wcprof_text::{count, duration, percent};
use wcprof_types::StopCause;

use crate::finding::{Basis, Finding, Setting, SettingsFound};
use crate::matching::any_glob;
use crate::rule::Rule;
use crate::totals::Index;

/// Time of a thread, ns.
#[derive(Clone, Default)]
struct Times {
    /// In the last slice of the profile that has any time: all, and stopped.
    last: f64,
    last_stopped: f64,
    /// Stopped, in all of the profile.
    stopped: u64,
    /// By whom: of several the one whose stop has most of the last slice.
    cause: Option<(f64, StopCause)>,
}

/// Threads that one cause stops.
#[derive(Default)]
struct Stopped {
    n_threads: usize,
    /// Of the thread that was stopped for longest, ns.
    longest_ns: u64,
}

/// A finding for each process of which threads are stopped for most of the end of the profile.
pub(crate) fn still_stopped(index: &Index<'_>, rule: &Rule) -> Vec<Finding> {
    let profile = index.profile;
    if !profile.rows.iter().any(|row| row.state == State::Stopped) {
        return Vec::new();
    }
    let mut of_process: BTreeMap<usize, (usize, BTreeMap<StopCause, Stopped>)> = BTreeMap::new();
    for (thread, times) in profile.threads.iter().zip(times(profile)) {
        // Threads that exited before the end have no part in it.
        if times.last <= 0.0 || thread.tid.0 == 0 {
            continue;
        }
        let (n_threads, causes) = of_process.entry(thread.process).or_default();
        *n_threads += 1;
        let part = 100.0 * times.last_stopped / times.last;
        if let Some((_, cause)) = times.cause
            && part >= rule.threshold.percent
            && percent(times.stopped, index.duration_ns) >= rule.threshold.min_wall_percent
        {
            let stopped = causes.entry(cause).or_default();
            stopped.n_threads += 1;
            stopped.longest_ns = stopped.longest_ns.max(times.stopped);
        }
    }
    let findings = of_process.into_iter().filter_map(|(at, (n_all, causes))| {
        let process = profile.processes.get(at)?;
        let names: Vec<&str> = causes.keys().map(|cause| cause.name()).collect();
        let (action, advice) = rule.of_stops(&names);
        let settings = causes.into_iter().map(|(cause, stopped)| Setting {
            name: "at the end".to_owned(),
            value: format!(
                "{} of {} {}, for {} of {}",
                stopped.n_threads,
                count(n_all, "thread"),
                cause.text(),
                duration(stopped.longest_ns),
                duration(index.duration_ns),
            ),
            origin: "states of the threads".to_owned(),
        });
        let settings: Vec<Setting> = settings.collect();
        if settings.is_empty() || !any_glob(&rule.matches.processes, &process.comm) {
            return None;
        }
        let fill = |text: &str| text.replace("{pid}", &process.pid.to_string());
        let finding = Finding::of_rule(
            rule,
            profile,
            at,
            Basis::Limit(SettingsFound {
                settings,
                n_threads: None,
            }),
        );
        Some(Finding {
            action: fill(&action),
            advice: fill(&advice),
            verify: fill(&rule.verify),
            ..finding
        })
    });
    findings.collect()
}

/// By thread.
fn times(profile: &Profile) -> Vec<Times> {
    let last = |slices: &wcprof_profile::model::Slices| slices.iter().last();
    let slices = profile.rows.iter().filter_map(|row| last(&row.slices));
    let end = slices.map(|(slice, _)| slice).max();
    let mut times = vec![Times::default(); profile.threads.len()];
    for row in &profile.rows {
        let of_end = last(&row.slices).filter(|(slice, _)| Some(*slice) == end);
        let at_end = of_end.map_or(0.0, |(_, weight)| f64::from(weight));
        let times = &mut times[row.thread];
        times.last += at_end;
        if row.state == State::Stopped {
            times.last_stopped += at_end;
            times.stopped = times.stopped.saturating_add(row.weight);
            let cause = profile.stop_cause(row);
            if times.cause.is_none_or(|(most, _)| at_end > most) {
                times.cause = Some((at_end, cause));
            }
        }
    }
    times
}
