//! What changes while a recording runs: names and bounds of threads, and the counts. And the text
//! that says how a process is set up.

use std::collections::BTreeMap;

use wcprof_types::TimeNs;

use super::entries::{end, end_code, time};
use super::wire::{Input, known, put, put_delta, put_list, put_str, within};
use crate::error::Malformed;
use crate::limits::{MAX_SETUP_BYTES, MAX_TIME_NS};
use crate::model::{Process, ProcessId, Stats, Thread, ThreadId};

pub(crate) fn put_name(out: &mut Vec<u8>, thread: ThreadId, seen: TimeNs, name: &str) {
    put(out, thread.0.into());
    put(out, seen.0);
    put_str(out, name);
}

/// Reads a whole section of names.
pub(crate) fn names(input: &mut Input<'_>, threads: &mut [Thread]) -> Result<(), Malformed> {
    while !input.is_empty() {
        let id = input.number32()?;
        let seen = time(input.number()?)?;
        let name = input.string()?;
        known("thread", id, threads.len())?;
        if let Some(thread) = threads.get_mut(id as usize) {
            thread.names.push((seen, name));
        }
    }
    Ok(())
}

pub(crate) fn put_cgroup(out: &mut Vec<u8>, process: ProcessId, path: &str) {
    put(out, process.0.into());
    put_str(out, path);
}

/// Reads a whole section of control groups.
pub(crate) fn cgroups(input: &mut Input<'_>, processes: &mut [Process]) -> Result<(), Malformed> {
    while !input.is_empty() {
        let id = input.number32()?;
        let path = input.string()?;
        known("process", id, processes.len())?;
        if let Some(process) = processes.get_mut(id as usize) {
            process.cgroup = path;
        }
    }
    Ok(())
}

/// First and last observation of a thread, and the ticks that observed it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) start: TimeNs,
    pub(crate) end: TimeNs,
    pub(crate) n_ticks: u64,
}

/// Appends bounds, each number as the difference from the thread before.
pub(crate) fn put_seen(out: &mut Vec<u8>, all: impl Iterator<Item = (ThreadId, Seen)>) {
    let mut last = (ThreadId(0), Seen::default());
    for (id, seen) in all {
        put_delta(out, id.0.into(), last.0.0.into());
        put_delta(out, seen.start.0, last.1.start.0);
        put_delta(out, seen.end.0, last.1.end.0);
        put_delta(out, seen.n_ticks, last.1.n_ticks);
        last = (id, seen);
    }
}

/// Reads a whole section of bounds.
pub(crate) fn seen(input: &mut Input<'_>, threads: &mut [Thread]) -> Result<(), Malformed> {
    let mut last = (0, Seen::default());
    while !input.is_empty() {
        let id = input.delta32(last.0)?;
        let start = input.delta(last.1.start.0)?;
        let end = input.delta(last.1.end.0)?;
        let n_ticks = input.delta(last.1.n_ticks)?;
        if start > end || end > MAX_TIME_NS {
            return Err(Malformed::Interval { start, end });
        }
        last = (
            id,
            Seen {
                start: TimeNs(start),
                end: TimeNs(end),
                n_ticks,
            },
        );
        known("thread", id, threads.len())?;
        if let Some(thread) = threads.get_mut(id as usize) {
            (thread.start, thread.end) = (last.1.start, last.1.end);
            thread.n_ticks = n_ticks;
        }
    }
    Ok(())
}

/// Appends the counts; `is_final` when nothing but names follows.
pub(crate) fn put_stats(out: &mut Vec<u8>, stats: &Stats, is_final: bool) {
    let Stats {
        duration,
        n_ticks,
        n_late,
        n_missed,
        n_observations,
        n_torn,
        n_timer_samples,
        n_lost,
        n_dropped_batches,
        ends,
        own_cpu_ns,
        own_rss_bytes,
        rate_changes,
        end_reason,
        complete,
    } = stats;
    out.push(u8::from(is_final) | u8::from(*complete) << 1);
    put(out, duration.0);
    for n in [
        n_ticks,
        n_late,
        n_missed,
        n_observations,
        n_torn,
        n_timer_samples,
        n_lost,
        n_dropped_batches,
        own_cpu_ns,
        own_rss_bytes,
    ] {
        put(out, *n);
    }
    let ends: Vec<_> = ends.iter().collect();
    put_list(out, &ends, |out, (end, n)| {
        out.push(end_code(**end));
        put(out, **n);
    });
    put_list(out, rate_changes, |out, (when, hz)| {
        put(out, when.0);
        put(out, (*hz).into());
    });
    put_str(out, end_reason);
}

/// The counts, and whether they are final.
pub(crate) fn stats(input: &mut Input<'_>) -> Result<(Stats, bool), Malformed> {
    let flags = input.byte()?;
    if flags > 3 {
        return Err(Malformed::UnknownCode {
            what: "statistics",
            code: flags.into(),
        });
    }
    let stats = Stats {
        duration: time(input.number()?)?,
        n_ticks: input.number()?,
        n_late: input.number()?,
        n_missed: input.number()?,
        n_observations: input.number()?,
        n_torn: input.number()?,
        n_timer_samples: input.number()?,
        n_lost: input.number()?,
        n_dropped_batches: input.number()?,
        own_cpu_ns: input.number()?,
        own_rss_bytes: input.number()?,
        ends: input
            .list(|input| Ok((end(input.byte()?)?, input.number()?)))?
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
        rate_changes: input.list(|input| Ok((time(input.number()?)?, input.number32()?)))?,
        end_reason: input.string()?,
        complete: flags & 2 != 0,
    };
    Ok((stats, flags & 1 != 0))
}

/// Reads a whole section with the setup of a process.
pub(crate) fn setup(input: &mut Input<'_>) -> Result<String, Malformed> {
    let bytes = std::mem::take(&mut input.0);
    within("bytes of a setup", bytes.len() as u64, MAX_SETUP_BYTES)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)?;
    Ok(text.to_owned())
}
