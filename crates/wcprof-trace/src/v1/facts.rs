//! What changes while a recording runs: names and bounds of threads, and the counts. And the text
//! that says how a process is set up.

use wcprof_types::TimeNs;

use super::entries::{end, end_code};
use super::wire::{
    Input, check_interval, known, put, put_delta, put_list, put_str, unknown, within,
};
use crate::error::Malformed;
use crate::limits::MAX_SETUP_BYTES;
use crate::model::{Process, ProcessId, Stats, Thread, ThreadId};

pub(crate) fn put_name(out: &mut Vec<u8>, thread: ThreadId, seen: TimeNs, name: &str) {
    put(out, thread.0.into());
    put(out, seen.0);
    put_str(out, name);
}

/// Reads a whole section of names.
pub(crate) fn names(input: &mut Input<'_>, threads: &mut [Thread]) -> Result<(), Malformed> {
    while !input.is_empty() {
        let id = input.id("thread", threads.len())?;
        let name = (input.time()?, input.string()?);
        threads[id as usize].names.push(name);
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
        let id = input.id("process", processes.len())?;
        processes[id as usize].cgroup = input.string()?;
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
    let (mut id, mut start, mut end, mut n_ticks) = (0, 0, 0, 0);
    while !input.is_empty() {
        id = input.delta32(id)?;
        start = input.delta(start)?;
        end = input.delta(end)?;
        n_ticks = input.delta(n_ticks)?;
        check_interval(start, end)?;
        known("thread", id, threads.len())?;
        let thread = &mut threads[id as usize];
        (thread.start, thread.end) = (TimeNs(start), TimeNs(end));
        thread.n_ticks = n_ticks;
    }
    Ok(())
}

/// Appends the counts; `is_final` when nothing but names follows.
pub(crate) fn put_stats(out: &mut Vec<u8>, stats: &Stats, is_final: bool) {
    out.push(u8::from(is_final) | u8::from(stats.complete) << 1);
    put(out, stats.duration.0);
    for n in stats.counts() {
        put(out, n);
    }
    put(out, stats.own_rss_bytes);
    let ends: Vec<_> = stats.ends.iter().collect();
    put_list(out, &ends, |out, (end, n)| {
        out.push(end_code(**end));
        put(out, **n);
    });
    put_list(out, &stats.rate_changes, |out, (when, hz)| {
        put(out, when.0);
        put(out, (*hz).into());
    });
    put_str(out, &stats.end_reason);
}

/// The counts, and whether they are final.
pub(crate) fn stats(input: &mut Input<'_>) -> Result<(Stats, bool), Malformed> {
    let flags = input.byte()?;
    if flags > 3 {
        return Err(unknown("statistics", flags));
    }
    let mut stats = Stats {
        duration: input.time()?,
        complete: flags & 2 != 0,
        ..Stats::default()
    };
    for count in stats.counts_mut() {
        *count = input.number()?;
    }
    stats.own_rss_bytes = input.number()?;
    let ends = input.list(|input| Ok((end(input.byte()?)?, input.number()?)))?;
    stats.ends = ends.into_iter().collect();
    stats.rate_changes = input.list(|input| Ok((input.time()?, input.number32()?)))?;
    stats.end_reason = input.string()?;
    Ok((stats, flags & 1 != 0))
}

/// Reads a whole section with the setup of a process.
pub(crate) fn setup(input: &mut Input<'_>) -> Result<String, Malformed> {
    let bytes = input.take_rest();
    within("bytes of a setup", bytes.len() as u64, MAX_SETUP_BYTES)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)?;
    Ok(text.to_owned())
}
