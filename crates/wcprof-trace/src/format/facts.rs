//! What changes while a recording runs: names and bounds of threads, ends of processes, and the counts.
//! And where processes come from.

use wcprof_types::{StackEnd, TimeNs};

use super::codec::{Codec, Sizes, Table, write};
use super::wire::{Input, check_interval, within};
use crate::error::Malformed;
use crate::limits::MAX_SETUP_BYTES;
use crate::model::{AccountsReading, ProcessEnd, ProcessId, Source, Stats, ThreadId};

/// A later name of a thread, and when it was first seen.
pub(crate) fn name(
    c: &mut Codec<'_, '_>,
    (thread, seen, name): &mut (ThreadId, TimeNs, String),
) -> Result<(), Malformed> {
    c.id(Table::Threads, &mut thread.0)?;
    c.time(seen)?;
    c.name(name)
}

/// The control group of a process, or its birth.
pub(crate) fn of_process(
    c: &mut Codec<'_, '_>,
    (process, text): &mut (ProcessId, String),
) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut process.0)?;
    c.string(text)
}

/// A process, and the index of another source that recorded it.
pub(crate) fn recorded_again(
    c: &mut Codec<'_, '_>,
    (process, source): &mut (ProcessId, u32),
) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut process.0)?;
    c.number32(source)
}

/// A process that stands for several, and how many.
pub(crate) fn folded(
    c: &mut Codec<'_, '_>,
    (process, n): &mut (ProcessId, u32),
) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut process.0)?;
    c.number32(n)
}

pub(crate) fn process_end(
    c: &mut Codec<'_, '_>,
    (process, end): &mut (ProcessId, ProcessEnd),
) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut process.0)?;
    c.time(&mut end.time)?;
    c.string(&mut end.reason)
}

/// A recording that a merged trace was made of.
pub(crate) fn source(c: &mut Codec<'_, '_>, source: &mut Source) -> Result<(), Malformed> {
    c.name(&mut source.host)?;
    c.string(&mut source.engine)?;
    c.string(&mut source.kernel)?;
    c.number32(&mut source.n_cpus)?;
    c.number32(&mut source.rate_hz)?;
    c.number(&mut source.started_unix_ns)?;
    c.time(&mut source.start)?;
    c.time(&mut source.duration)?;
    c.number32(&mut source.n_processes)
}

/// First and last observation of a thread, and the ticks that observed it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) thread: ThreadId,
    pub(crate) start: TimeNs,
    pub(crate) end: TimeNs,
    pub(crate) n_ticks: u64,
}

/// Each number is the difference from that of the thread before.
pub(crate) fn seen(
    c: &mut Codec<'_, '_>,
    seen: &mut Seen,
    before: &mut Seen,
) -> Result<(), Malformed> {
    c.delta_id(Table::Threads, &mut seen.thread.0, before.thread.0)?;
    c.delta(&mut seen.start.0, before.start.0)?;
    c.delta(&mut seen.end.0, before.end.0)?;
    c.delta(&mut seen.n_ticks, before.n_ticks)?;
    *before = *seen;
    check_interval(seen.start.0, seen.end.0)
}

/// The counts; `is_final` when nothing but names follows.
pub(crate) fn stats(
    c: &mut Codec<'_, '_>,
    stats: &mut Stats,
    is_final: &mut bool,
) -> Result<(), Malformed> {
    let mut flags = u8::from(*is_final) | u8::from(stats.complete) << 1;
    c.byte(&mut flags)?;
    (*is_final, stats.complete) = (flags & 1 != 0, flags & 2 != 0);
    c.time(&mut stats.duration)?;
    for count in stats.counts_mut() {
        c.number(count)?;
    }
    c.number(&mut stats.own_rss_bytes)?;
    let ends = std::mem::take(&mut stats.ends).into_iter();
    let mut ends: Vec<(u8, u64)> = ends.map(|(end, n)| (end.code(), n)).collect();
    c.list(&mut ends, |c, (code, n)| {
        c.byte(code)?;
        c.number(n)
    })?;
    for (code, n) in ends {
        stats.ends.insert(StackEnd::from_code(code), n);
    }
    c.list(&mut stats.rate_changes, |c, (when, hz)| {
        c.time(when)?;
        c.number32(hz)
    })?;
    c.string(&mut stats.end_reason)
}

/// Reads a whole section with a reading of the kernel's accounts.
pub(crate) fn accounts(input: &mut Input<'_>, sizes: Sizes) -> Result<AccountsReading, Malformed> {
    let mut reading = AccountsReading::default();
    let c = &mut Codec::reader(input, sizes);
    c.number32(&mut reading.source)?;
    c.time(&mut reading.time)?;
    reading.json = setup(input)?;
    Ok(reading)
}

/// The begin of such a section, before the document.
pub(crate) fn put_accounts(
    out: &mut Vec<u8>,
    sizes: &Sizes,
    reading: &AccountsReading,
) -> Result<(), Malformed> {
    let (mut source, mut time) = (reading.source, reading.time);
    write(out, sizes, |c| {
        c.number32(&mut source)?;
        c.time(&mut time)
    })?;
    out.extend_from_slice(reading.json.as_bytes());
    Ok(())
}

/// Reads a whole section with the setup of a process.
pub(crate) fn setup(input: &mut Input<'_>) -> Result<String, Malformed> {
    let bytes = input.take_rest();
    within("bytes of a setup", bytes.len() as u64, MAX_SETUP_BYTES)?;
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotUtf8)?;
    Ok(text.to_owned())
}
