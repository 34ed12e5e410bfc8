//! Several traces to which of their processes are one process, recorded again.
//!
//! A process is known by its host and kernel, pid, name and command line, and by its birth (boot and start
//! time). Imported recordings do not have the birth: then the rest must do.

use std::collections::HashMap;

use wcprof_types::{Pid, TimeNs};

use crate::model::{Process, ProcessId, Tables};

/// Which processes of some traces are one, and the order of the traces in time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Joins {
    /// Indices of the traces, the one that began first first.
    pub(crate) order: Vec<usize>,
    /// By trace, then process: the trace and process that it was recorded in first.
    continued: Vec<Vec<Option<(usize, ProcessId)>>>,
    /// Processes that were recorded several times, in the order of time.
    pub repeated: Vec<Repeated>,
}

/// A process that was recorded several times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repeated {
    /// The trace with its first recording: index into what was given.
    pub source: usize,
    /// The process in that trace.
    pub process: ProcessId,
    /// How many recordings.
    pub n_recordings: usize,
    /// Their lengths together, ns.
    pub recorded_ns: u64,
    /// From the start of the first one to the end of the last one, ns.
    pub over_ns: u64,
}

/// Two traces recorded one process at the same time: each moment of it would count twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// Indices of the traces.
    pub sources: [usize; 2],
    /// The process.
    pub pid: Pid,
    /// Its name; not escaped.
    pub comm: String,
    /// How long, ns.
    pub ns: u64,
}

/// One process, as far as it was found.
struct Found {
    repeated: Repeated,
    birth: String,
    /// The trace with its last recording.
    last: usize,
    /// Begin of the first recording and end of the last one, ns since 1970.
    span: (u64, u64),
    /// It exited, or executed another program.
    has_ended: bool,
}

/// Of the processes of one key, those that were found last: of a number that is used again, all but one have ended.
const MAX_SAME: usize = 64;

/// Host, kernel, pid, name and command line.
type Key<'t> = (&'t str, &'t str, Pid, &'t str, &'t [String]);

impl Joins {
    /// Each trace's processes stay apart; the traces keep their order.
    pub fn none(n_sources: usize) -> Self {
        Self {
            order: (0..n_sources).collect(),
            ..Self::default()
        }
    }

    /// Finds the processes that several traces recorded one after the other.
    ///
    /// # Errors
    /// When two traces recorded one process at the same time.
    pub fn find(sources: &[Tables]) -> Result<Self, Overlap> {
        let mut joins = Self::none(sources.len());
        joins
            .order
            .sort_by_key(|i| sources[*i].header.started_unix_ns);
        joins.continued = sources
            .iter()
            .map(|t| vec![None; t.processes.len()])
            .collect();
        let mut known: HashMap<Key<'_>, Vec<Found>> = HashMap::new();
        for &source in &joins.order {
            let tables = &sources[source];
            let parts = tables.recorded_parts();
            let processes = tables.processes.iter().zip(&parts);
            for (id, (process, parts)) in (0..).map(ProcessId).zip(processes) {
                let Some(key) = key(tables, id, process) else {
                    continue;
                };
                let all = known.entry(key).or_default();
                let new = found(tables, source, (id, process), parts);
                let mut newest = all.iter_mut().rev().take(MAX_SAME);
                let same = newest.find(|found| found.is_same(&new));
                match same {
                    None => all.push(new),
                    Some(found) => {
                        found.go_on(new, process)?;
                        let first = (found.repeated.source, found.repeated.process);
                        joins.continued[source][id.0 as usize] = Some(first);
                    }
                }
            }
        }
        let all = known.into_values().flatten().map(|found| found.repeated);
        joins.repeated = all.filter(|r| r.n_recordings > 1).collect();
        joins
            .repeated
            .sort_by_key(|r| (joins.order.iter().position(|i| *i == r.source), r.process));
        match joins.repeated.is_empty() {
            true => Ok(Self::none(sources.len())),
            false => Ok(joins),
        }
    }

    /// How many processes of the traces are ones of traces before.
    pub fn n_continued(&self) -> usize {
        self.continued.iter().flatten().flatten().count()
    }

    /// The trace and process in which this process was recorded first; `None` if that is here.
    pub(crate) fn continued(
        &self,
        source: usize,
        process: ProcessId,
    ) -> Option<(usize, ProcessId)> {
        let of_source = self.continued.get(source)?;
        *of_source.get(process.0 as usize)?
    }
}

/// What two recordings of a process have in common; `None` where too little is known of it.
fn key<'t>(tables: &'t Tables, id: ProcessId, process: &'t Process) -> Option<Key<'t>> {
    let is_known = process.pid.0 > 0 && (!process.cmdline.is_empty() || !process.birth.is_empty());
    let kernel = tables
        .source_of(id)
        .map_or(&tables.header.kernel, |source| &source.kernel);
    is_known.then_some((
        tables.host_of(id),
        kernel,
        process.pid,
        &process.comm,
        &process.cmdline,
    ))
}

/// A process of one trace, recorded in these parts.
fn found(
    tables: &Tables,
    source: usize,
    (id, process): (ProcessId, &Process),
    parts: &[(TimeNs, TimeNs)],
) -> Found {
    let at = |time: u64| tables.header.started_unix_ns.saturating_add(time);
    let first = parts.first().map_or(0, |(start, _)| start.0);
    let last = parts.last().map_or(0, |(_, end)| end.0);
    let lengths = parts.iter().map(|(start, end)| end.0 - start.0);
    Found {
        repeated: Repeated {
            source,
            process: id,
            n_recordings: parts.len(),
            recorded_ns: lengths.fold(0, u64::saturating_add),
            over_ns: last - first,
        },
        birth: process.birth.clone(),
        last: source,
        span: (at(first), at(last)),
        has_ended: tables.origins.process_ends.contains_key(&id),
    }
}

impl Found {
    /// Whether `new`, of the same key, can be the same process.
    fn is_same(&self, new: &Self) -> bool {
        let is_born = || self.birth.is_empty() || new.birth.is_empty() || self.birth == new.birth;
        !self.has_ended && self.last != new.last && is_born()
    }

    /// Adds a later recording.
    fn go_on(&mut self, new: Self, process: &Process) -> Result<(), Overlap> {
        let (begin, end) = new.span;
        if begin < self.span.1 {
            return Err(Overlap {
                sources: [self.last, new.last],
                pid: process.pid,
                comm: process.comm.clone(),
                ns: self.span.1.min(end) - begin,
            });
        }
        self.repeated.n_recordings += new.repeated.n_recordings;
        self.repeated.recorded_ns += new.repeated.recorded_ns;
        self.repeated.over_ns = end - self.span.0;
        (self.last, self.span.1, self.has_ended) = (new.last, end, new.has_ended);
        if self.birth.is_empty() {
            self.birth = new.birth;
        }
        Ok(())
    }
}
