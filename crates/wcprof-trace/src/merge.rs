//! Several traces to one: recordings of the same time on several hosts, or of the same work one after
//! the other.
//!
//! Each source keeps its own processes, but for those that several of them recorded ([`Joins`]): these become
//! one process over time. What two sources may number alike (frames, stacks, waits) is interned anew. Kernel
//! code is named by its function from then on, since hosts have kernels of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use indexmap::IndexSet;
use wcprof_types::snapshot::Snapshot;
use wcprof_types::{Pid, TimeNs};

use crate::error::TraceError;
use crate::format::wire::within;
use crate::joins::Joins;
use crate::limits::{MAX_RECORDED_AGAIN, MAX_SOURCES};
use crate::model::{
    Frame, FrameId, Header, LaterName, LocalNames, ProcessId, Source, Stats, SymbolFrame,
    SymbolTable, Tables,
};
use crate::reader::TraceReader;
use crate::sink::TraceSink;
use crate::whole::{Ids, Known};
use crate::writer::TraceWriter;

/// Where the sources lie in the time of the merged trace.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Align {
    /// By the hosts' clocks.
    Clock,
    /// All begin at the same moment. A process that several of them recorded is a process for each.
    Start,
}

impl Align {
    /// By the clocks if a process was recorded several times, or if there is a moment at which all sources were
    /// recorded; other recordings made one after the other begin together.
    pub fn fitting(sources: &[Tables], joins: &Joins) -> Self {
        if !joins.repeated.is_empty() {
            return Self::Clock;
        }
        let times = |t: &Tables| {
            let begin = t.header.started_unix_ns;
            (begin, begin.saturating_add(t.stats.duration.0))
        };
        let latest_begin = sources.iter().map(|t| times(t).0).max();
        let first_end = sources.iter().map(|t| times(t).1).min();
        match latest_begin < first_end {
            true => Self::Clock,
            false => Self::Start,
        }
    }
}

/// What was lost on the way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MergeLosses {
    /// Frames of code in no file, of which two sources have different names at one address: they
    /// have none now.
    pub n_unnamed: usize,
}

/// The header of a trace merged of `sources`, of which there must be one at least.
pub fn merged_header(sources: &[Tables], wcprof_version: &str) -> Header {
    let headers = || sources.iter().map(|t| &t.header);
    let mut cpus: BTreeMap<&str, u32> = BTreeMap::new();
    for header in headers() {
        let n = cpus.entry(&header.host).or_default();
        *n = (*n).max(header.n_cpus);
    }
    let notes = headers().flat_map(|header| {
        let of_host = header.notes.iter();
        of_host.map(|note| format!("{}: {note}", header.host))
    });
    // Several recordings of one host say the same.
    let notes: IndexSet<String> = notes.collect();
    Header {
        wcprof_version: wcprof_version.to_owned(),
        engine: distinct(headers().map(|h| h.engine.as_str())),
        notes: notes.into_iter().collect(),
        rate_hz: headers().map(|h| h.rate_hz).max().unwrap_or(0),
        host: distinct(headers().map(|h| h.host.as_str())),
        kernel: distinct(headers().map(|h| h.kernel.as_str())),
        n_cpus: cpus.values().fold(0, |sum, n| sum.saturating_add(*n)),
        started_unix_ns: headers().map(|h| h.started_unix_ns).min().unwrap_or(0),
        // Snapshots lie beside each other, and beside a recording they have no axis of time.
        n_snapshots: match headers().all(|h| h.n_snapshots > 0) {
            true => headers().map(|h| h.n_snapshots).max().unwrap_or(0),
            false => 0,
        },
    }
}

/// Each text once, in order of appearance.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut known = BTreeSet::new();
    let new: Vec<&str> = texts.filter(|text| known.insert(*text)).collect();
    new.join(", ")
}

/// Writes `sources` (the tables of whole traces) as one trace; `spans` opens each of them once more,
/// for its spans. `joins` are of these sources; they need [`Align::Clock`].
///
/// # Errors
/// A source cannot be read, or the trace not be written, or it would pass a limit of the format.
pub fn merge<W: Write, R: Read>(
    mut sources: Vec<Tables>,
    align: Align,
    joins: &Joins,
    mut spans: impl FnMut(usize) -> Result<TraceReader<R>, TraceError>,
    writer: &mut TraceWriter<W>,
) -> Result<MergeLosses, TraceError> {
    let first = sources.iter().map(|t| t.header.started_unix_ns).min();
    drop_older_setups(&mut sources, joins);
    let mut merger = Merger::new(joins, writer);
    for &i in &joins.order {
        let mut tables = std::mem::take(&mut sources[i]);
        let offset = match align {
            Align::Clock => tables.header.started_unix_ns - first.unwrap_or(0),
            Align::Start => 0,
        };
        delay(&mut tables, offset);
        let ids = merger.add(i, tables)?;
        let mut failed = None;
        spans(i)?.read(|_, span| {
            if failed.is_none()
                && let Some(mut span) = ids.span(&span)
            {
                later(&mut span.start, offset);
                later(&mut span.end, offset);
                failed = merger.writer.span(&span).err();
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
    }
    merger.finish()
}

/// The merged trace so far.
struct Merger<'a, W: Write> {
    joins: &'a Joins,
    writer: &'a mut TraceWriter<W>,
    known: Known,
    /// The ids of each source's processes; none for one that is still to come.
    processes: Vec<Vec<ProcessId>>,
    n_sources: u32,
    /// Processes that sources after their first one recorded.
    n_again: u64,
    stats: Stats,
    names: Names,
    reasons: Vec<String>,
}

impl<'a, W: Write> Merger<'a, W> {
    fn new(joins: &'a Joins, writer: &'a mut TraceWriter<W>) -> Self {
        Self {
            joins,
            writer,
            known: Known::default(),
            processes: vec![Vec::new(); joins.order.len()],
            n_sources: 0,
            n_again: 0,
            stats: Stats {
                complete: true,
                ..Stats::default()
            },
            names: Names::default(),
            reasons: Vec::new(),
        }
    }

    /// Adds a source, delayed already; the ids of what it has.
    fn add(&mut self, source: usize, mut tables: Tables) -> Result<Ids, TraceError> {
        name_kernel_code(&mut tables);
        for reading in &mut tables.origins.accounts {
            reading.source = reading.source.saturating_add(self.n_sources);
        }
        add_stats(&mut self.stats, &tables.stats);
        let joined = |id: ProcessId| {
            let (source, first) = self.joins.continued(source, id)?;
            self.processes[source].get(first.0 as usize).copied()
        };
        let ids = self
            .writer
            .add_joined_tables(&tables, joined, &mut self.known)?;
        let is_joined = |id: &ProcessId| joined(*id).is_some();
        let of_source = (0..tables.processes.len() as u32).map(ProcessId);
        let joined: BTreeSet<ProcessId> = of_source.filter(is_joined).collect();
        self.add_sources(&tables, &ids, &joined)?;
        self.names.add(&tables, &ids);
        self.processes[source].clone_from(&ids.processes);
        self.reasons.push(tables.stats.end_reason);
        Ok(ids)
    }

    /// Adds the recordings that a source was made of, and which processes they recorded again; those
    /// `joined` are of recordings before.
    fn add_sources(
        &mut self,
        tables: &Tables,
        ids: &Ids,
        joined: &BTreeSet<ProcessId>,
    ) -> Result<(), TraceError> {
        let n_before = self.n_sources;
        let mut next = 0_u32;
        for (n, source) in (n_before..).zip(&tables.origins.sources) {
            // A file may claim more processes than it has.
            let after = next.saturating_add(source.n_processes);
            let own = joined.range(ProcessId(next)..ProcessId(after));
            let again: Vec<ProcessId> = own.copied().collect();
            next = after;
            within("sources", u64::from(n) + 1, MAX_SOURCES)?;
            self.writer.add_source(&Source {
                n_processes: source.n_processes - again.len() as u32,
                ..source.clone()
            })?;
            for id in again {
                self.recorded_again(ids, id, n)?;
            }
            self.n_sources = n + 1;
        }
        for (id, source) in &tables.origins.recorded_again {
            self.recorded_again(ids, *id, n_before.saturating_add(*source))?;
        }
        Ok(())
    }

    fn recorded_again(&mut self, ids: &Ids, id: ProcessId, n: u32) -> Result<(), TraceError> {
        self.n_again += 1;
        within("processes recorded again", self.n_again, MAX_RECORDED_AGAIN)?;
        self.writer.recorded_again(ids.processes[id.0 as usize], n)
    }

    /// Writes what is known when all sources were added.
    fn finish(mut self) -> Result<MergeLosses, TraceError> {
        self.stats.end_reason = distinct(self.reasons.iter().map(String::as_str));
        self.writer.finish(&self.stats)?;
        let losses = MergeLosses {
            n_unnamed: self.names.contested.len(),
        };
        if let Some(mut symbols) = self.names.symbols.take() {
            let contested = &self.names.contested;
            symbols.frames.retain(|id, _| !contested.contains(id));
            self.writer.write_symbols(&symbols)?;
        }
        self.writer.write_local_names(&self.names.local())?;
        Ok(losses)
    }
}

/// Of the settings of a process that was recorded several times only the last ones stay.
fn drop_older_setups(sources: &mut [Tables], joins: &Joins) {
    let repeated: Vec<Pid> = joins
        .repeated
        .iter()
        .map(|r| sources[r.source].processes[r.process.0 as usize].pid)
        .collect();
    let mut known = BTreeSet::new();
    for &i in joins.order.iter().rev() {
        sources[i].origins.setups.retain(|setup| {
            let Ok(setup) = serde_json::from_str::<Snapshot>(setup) else {
                return true;
            };
            let pid = setup.process.pid;
            !repeated.contains(&pid) || known.insert((setup.host.name, pid, setup.process.comm))
        });
    }
}

/// A recording as the only source of itself.
fn as_source(tables: &Tables) -> Source {
    let header = &tables.header;
    Source {
        host: header.host.clone(),
        engine: header.engine.clone(),
        kernel: header.kernel.clone(),
        n_cpus: header.n_cpus,
        rate_hz: header.rate_hz,
        started_unix_ns: header.started_unix_ns,
        start: TimeNs(0),
        duration: tables.stats.duration,
        n_processes: u32::try_from(tables.processes.len()).unwrap_or(u32::MAX),
    }
}

fn later(time: &mut TimeNs, offset: u64) {
    time.0 = time.0.saturating_add(offset);
}

/// Lets all that tables say be `offset` ns later; a recording gets itself as its source.
fn delay(tables: &mut Tables, offset: u64) {
    if tables.origins.sources.is_empty() {
        tables.origins.sources.push(as_source(tables));
    }
    let Tables {
        origins,
        threads,
        locks,
        names,
        stats,
        ..
    } = tables;
    let starts = origins.sources.iter_mut().map(|source| &mut source.start);
    let ends = origins.process_ends.values_mut().map(|end| &mut end.time);
    let readings = origins.counters.readings.iter_mut();
    let readings = readings.map(|reading| &mut reading.time);
    let accounts = origins.accounts.iter_mut().map(|reading| &mut reading.time);
    let looks = locks.looks.iter_mut();
    let looks = looks.flat_map(|look| [&mut look.since, &mut look.until]);
    let moved = locks.moved.iter_mut().map(|(_, tick)| tick);
    let names = names.local.later.iter_mut().map(|name| &mut name.since);
    let rates = stats.rate_changes.iter_mut().map(|(time, _)| time);
    for time in starts
        .chain(ends)
        .chain(readings)
        .chain(accounts)
        .chain(looks)
        .chain(moved)
        .chain(names)
        .chain(rates)
    {
        later(time, offset);
    }
    for thread in threads {
        let names = thread.names.iter_mut().map(|(seen, _)| seen);
        for time in names.chain([&mut thread.start, &mut thread.end]) {
            later(time, offset);
        }
    }
    later(&mut stats.duration, offset);
}

/// Turns addresses of the kernel into names, since each host has its own kernel.
fn name_kernel_code(tables: &mut Tables) {
    let names = &tables.names.local.names.frames;
    for (id, frame) in (0..).map(FrameId).zip(&mut tables.frames) {
        if let Frame::KernelCode(address) = frame {
            let name = names.get(&id).and_then(|names| names.last());
            let name = name.map_or_else(|| format!("{:#x}", address.0), |f| f.name.clone());
            *frame = Frame::Kernel(name);
        }
    }
}

fn add_stats(sum: &mut Stats, stats: &Stats) {
    sum.duration = sum.duration.max(stats.duration);
    sum.add_counts(stats);
    for (end, n) in &stats.ends {
        let sum = sum.ends.entry(*end).or_default();
        *sum = sum.saturating_add(*n);
    }
    sum.own_rss_bytes = sum.own_rss_bytes.max(stats.own_rss_bytes);
    sum.rate_changes.extend_from_slice(&stats.rate_changes);
    sum.complete &= stats.complete;
}

/// A frame's names, and those that came later.
type LocalOf = (Vec<SymbolFrame>, Vec<LaterName>);

/// Names of all sources.
#[derive(Default)]
struct Names {
    symbols: Option<SymbolTable>,
    /// Names that only the recorded machines had; `None` for code in no file that none names.
    local: BTreeMap<FrameId, Option<LocalOf>>,
    /// Frames to which two sources give different names.
    contested: BTreeSet<FrameId>,
}

impl Names {
    /// Adds those of a source, whose frames have these ids in the merged trace.
    fn add(&mut self, tables: &Tables, ids: &Ids) {
        let of = |id: &FrameId| ids.frames[id.0 as usize];
        if let Some(symbols) = &tables.names.symbols {
            let all = self.symbols.get_or_insert_default();
            for (id, functions) in &symbols.frames {
                let known = all.frames.insert(of(id), functions.clone());
                // Of files the names are of the same code.
                let is_of_file = matches!(tables.frames[id.0 as usize], Frame::Native { .. });
                if !is_of_file && known.is_some_and(|known| known != *functions) {
                    self.contested.insert(of(id));
                }
            }
        }
        let mut later: BTreeMap<FrameId, Vec<LaterName>> = BTreeMap::new();
        for name in &tables.names.local.later {
            let frame = of(&name.frame);
            let name = LaterName {
                frame,
                ..name.clone()
            };
            later.entry(frame).or_default().push(name);
        }
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            let functions = tables.names.local.names.frames.get(&id);
            let may_have = match frame {
                // The same address may be code of another process in another source.
                Frame::Unmapped(_) => true,
                Frame::Native { .. } => functions.is_some(),
                // By name in any case.
                Frame::Kernel(_) | Frame::KernelCode(_) | Frame::Unknown(_) => false,
            };
            if !may_have {
                continue;
            }
            let frame = of(&id);
            let later = later.remove(&frame).unwrap_or_default();
            let names = functions.map(|functions| (functions.clone(), later));
            let known = self.local.entry(frame).or_insert_with(|| names.clone());
            if *known != names {
                self.contested.insert(frame);
            }
        }
    }

    fn local(self) -> LocalNames {
        let mut all = LocalNames::default();
        for (frame, names) in self.local {
            if let Some((functions, later)) = names.filter(|_| !self.contested.contains(&frame)) {
                all.names.frames.insert(frame, functions);
                all.later.extend(later);
            }
        }
        all
    }
}
