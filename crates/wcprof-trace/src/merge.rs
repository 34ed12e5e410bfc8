//! Several traces to one: recordings of the same time on several hosts, or of the same work one after
//! the other.
//!
//! Each source keeps its own processes; what two of them may number alike (frames, stacks, waits) is
//! interned anew. Kernel code is named by its function from then on, since hosts have kernels of
//! their own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use wcprof_types::TimeNs;

use crate::error::TraceError;
use crate::model::{
    Frame, FrameId, Header, LaterName, LocalNames, LockFacts, LockLook, LockOwner, Module,
    ModuleId, NodeId, ProcessEnd, ProcessId, Source, Span, StackId, Stats, SymbolFrame,
    SymbolTable, Tables, Thread, ThreadId, WaitId,
};
use crate::reader::TraceReader;
use crate::writer::TraceWriter;

/// Where the sources lie in the time of the merged trace.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Align {
    /// By the hosts' clocks.
    Clock,
    /// All begin at the same moment.
    Start,
}

impl Align {
    /// By the clocks if there is a moment at which all sources were recorded; recordings made one
    /// after the other begin together.
    pub fn fitting(sources: &[Tables]) -> Self {
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
    let mut notes = Vec::new();
    for header in headers() {
        let of_host = header.notes.iter();
        notes.extend(of_host.map(|note| format!("{}: {note}", header.host)));
    }
    Header {
        wcprof_version: wcprof_version.to_owned(),
        engine: distinct(headers().map(|h| h.engine.as_str())),
        notes,
        rate_hz: headers().map(|h| h.rate_hz).max().unwrap_or(0),
        host: distinct(headers().map(|h| h.host.as_str())),
        kernel: distinct(headers().map(|h| h.kernel.as_str())),
        n_cpus: cpus.values().fold(0, |sum, n| sum.saturating_add(*n)),
        started_unix_ns: headers().map(|h| h.started_unix_ns).min().unwrap_or(0),
    }
}

/// Each text once, in order of appearance.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut known = BTreeSet::new();
    let new: Vec<&str> = texts.filter(|text| known.insert(*text)).collect();
    new.join(", ")
}

/// Writes `sources` (the tables of whole traces) as one trace; `spans` opens each of them once more,
/// for its spans.
///
/// # Errors
/// A source cannot be read, or the trace not be written, or it would pass a limit of the format.
pub fn merge<W: Write, R: Read>(
    sources: &[Tables],
    align: Align,
    mut spans: impl FnMut(usize) -> Result<TraceReader<R>, TraceError>,
    writer: &mut TraceWriter<W>,
) -> Result<MergeLosses, TraceError> {
    let first = sources.iter().map(|t| t.header.started_unix_ns).min();
    let mut stats = Stats {
        complete: true,
        ..Stats::default()
    };
    let mut names = Names::default();
    let mut reasons = Vec::new();
    for (i, tables) in sources.iter().enumerate() {
        let offset = match align {
            Align::Clock => tables.header.started_unix_ns - first.unwrap_or(0),
            Align::Start => 0,
        };
        for source in sources_of(tables, offset) {
            writer.add_source(&source)?;
        }
        let ids = Ids::write(tables, offset, writer)?;
        names.take(tables, &ids, offset);
        let mut failed = None;
        spans(i)?.read(|_, span| {
            if failed.is_none() {
                failed = ids
                    .span(&span, offset)
                    .and_then(|span| writer.span(&span).err());
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        ids.write_threads(tables, offset, writer)?;
        ids.write_locks(&tables.locks, offset, writer)?;
        add_stats(&mut stats, &tables.stats, offset);
        reasons.push(tables.stats.end_reason.as_str());
    }
    stats.end_reason = distinct(reasons.into_iter());
    writer.finish(&stats)?;
    let losses = MergeLosses {
        n_unnamed: names.contested.len(),
    };
    if let Some(symbols) = names.symbols.take() {
        writer.write_symbols(&symbols)?;
    }
    writer.write_local_names(&names.local())?;
    Ok(losses)
}

/// The recordings of a source: itself, unless it was merged.
fn sources_of(tables: &Tables, offset: u64) -> Vec<Source> {
    if !tables.sources.is_empty() {
        let moved = |source: &Source| Source {
            start: later(source.start, offset),
            ..source.clone()
        };
        return tables.sources.iter().map(moved).collect();
    }
    let header = &tables.header;
    vec![Source {
        host: header.host.clone(),
        engine: header.engine.clone(),
        kernel: header.kernel.clone(),
        n_cpus: header.n_cpus,
        rate_hz: header.rate_hz,
        started_unix_ns: header.started_unix_ns,
        start: TimeNs(offset),
        duration: tables.stats.duration,
        n_processes: u32::try_from(tables.processes.len()).unwrap_or(u32::MAX),
    }]
}

fn later(time: TimeNs, offset: u64) -> TimeNs {
    TimeNs(time.0.saturating_add(offset))
}

fn add_stats(sum: &mut Stats, stats: &Stats, offset: u64) {
    sum.duration = sum.duration.max(later(stats.duration, offset));
    for (sum, n) in [
        (&mut sum.n_ticks, stats.n_ticks),
        (&mut sum.n_late, stats.n_late),
        (&mut sum.n_missed, stats.n_missed),
        (&mut sum.n_observations, stats.n_observations),
        (&mut sum.n_torn, stats.n_torn),
        (&mut sum.n_timer_samples, stats.n_timer_samples),
        (&mut sum.n_lost, stats.n_lost),
        (&mut sum.n_dropped_batches, stats.n_dropped_batches),
        (&mut sum.own_cpu_ns, stats.own_cpu_ns),
    ] {
        *sum = sum.saturating_add(n);
    }
    for (end, n) in &stats.ends {
        let sum = sum.ends.entry(*end).or_default();
        *sum = sum.saturating_add(*n);
    }
    sum.own_rss_bytes = sum.own_rss_bytes.max(stats.own_rss_bytes);
    let changes = stats.rate_changes.iter();
    sum.rate_changes
        .extend(changes.map(|&(time, rate)| (later(time, offset), rate)));
    sum.complete &= stats.complete;
}

/// The ids of a source's entries in the merged trace.
struct Ids {
    processes: Vec<ProcessId>,
    threads: Vec<ThreadId>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    waits: Vec<WaitId>,
}

impl Ids {
    /// Writes the tables of a source but its spans, and what is known of threads only at the end.
    fn write<W: Write>(
        tables: &Tables,
        offset: u64,
        writer: &mut TraceWriter<W>,
    ) -> Result<Self, TraceError> {
        let mut processes: Vec<ProcessId> = Vec::new();
        for process in &tables.processes {
            processes.push(writer.add_process(process.clone())?);
        }
        // The reader has checked every reference; what would be missing is left out all the same.
        let process = |id: ProcessId| processes.get(id.0 as usize).copied();
        for (id, end) in &tables.process_ends {
            if let Some(id) = process(*id) {
                let moved = ProcessEnd {
                    time: later(end.time, offset),
                    ..end.clone()
                };
                writer.process_ended(id, &moved)?;
            }
        }
        for setup in &tables.setups {
            writer.add_setup(setup)?;
        }
        let mut modules: Vec<ModuleId> = Vec::new();
        for module in &tables.modules {
            modules.push(writer.add_module(Module {
                process: process(module.process).unwrap_or(ProcessId(0)),
                ..module.clone()
            })?);
        }
        let mut threads = Vec::new();
        for thread in &tables.threads {
            let of = process(thread.process).unwrap_or(ProcessId(0));
            let (seen, name) = thread
                .names
                .first()
                .map_or((thread.start, ""), |(time, name)| (*time, name.as_str()));
            threads.push(writer.add_thread(of, thread.tid, later(seen, offset), name)?);
        }
        let mut frames = Vec::new();
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            frames.push(writer.intern_frame(moved_frame(tables, id, frame, &modules))?);
        }
        let frame = |id: FrameId| frames.get(id.0 as usize).copied().unwrap_or(FrameId(0));
        let mut nodes: Vec<NodeId> = Vec::new();
        for node in &tables.nodes {
            let caller = node.caller.and_then(|id| nodes.get(id.0 as usize).copied());
            nodes.push(writer.intern_node(caller, frame(node.frame))?);
        }
        let mut stacks = Vec::new();
        for stack in &tables.stacks {
            let leaf = stack.leaf.and_then(|id| nodes.get(id.0 as usize).copied());
            stacks.push(writer.intern_leaf(leaf, stack.end)?);
        }
        let mut waits = Vec::new();
        for wait in &tables.waits {
            waits.push(writer.intern_wait(wait.clone())?);
        }
        Ok(Self {
            processes,
            threads,
            frames,
            stacks,
            waits,
        })
    }

    fn span(&self, span: &Span, offset: u64) -> Option<Span> {
        Some(Span {
            thread: self.threads.get(span.thread.0 as usize).copied()?,
            start: later(span.start, offset),
            end: later(span.end, offset),
            stack: span.stack.and_then(|id| self.stack(id)),
            wait: span.wait.and_then(|id| self.wait(id)),
            ..*span
        })
    }

    fn write_threads<W: Write>(
        &self,
        tables: &Tables,
        offset: u64,
        writer: &mut TraceWriter<W>,
    ) -> Result<(), TraceError> {
        for (id, thread) in self.threads.iter().zip(&tables.threads) {
            let Thread { start, end, .. } = thread;
            let (start, end) = (later(*start, offset), later(*end, offset));
            writer.thread_seen(*id, start, end, thread.n_ticks)?;
            for (seen, name) in thread.names.iter().skip(1) {
                writer.thread_name(*id, later(*seen, offset), name)?;
            }
        }
        Ok(())
    }
}

impl Ids {
    fn write_locks<W: Write>(
        &self,
        locks: &LockFacts,
        offset: u64,
        writer: &mut TraceWriter<W>,
    ) -> Result<(), TraceError> {
        let thread = |id: ThreadId| self.threads.get(id.0 as usize).copied();
        for (id, own) in &locks.own_tids {
            if let Some(id) = thread(*id) {
                writer.own_tid(id, *own)?;
            }
        }
        for look in &locks.looks {
            let Some(&process) = self.processes.get(look.process.0 as usize) else {
                continue;
            };
            let owners = look.owners.iter().filter_map(|owner| {
                Some(LockOwner {
                    thread: thread(owner.thread)?,
                    stack: owner.stack.and_then(|id| self.stack(id)),
                    wait: owner.wait.and_then(|id| self.wait(id)),
                    ..*owner
                })
            });
            writer.lock_look(&LockLook {
                process,
                since: later(look.since, offset),
                until: later(look.until, offset),
                owners: owners.collect(),
                ..look.clone()
            })?;
        }
        for (id, tick) in &locks.moved {
            if let Some(id) = thread(*id) {
                writer.waiter_moved(id, later(*tick, offset))?;
            }
        }
        match locks.n_skipped {
            0 => Ok(()),
            n => writer.locks_skipped(n),
        }
    }

    fn stack(&self, id: StackId) -> Option<StackId> {
        self.stacks.get(id.0 as usize).copied()
    }

    fn wait(&self, id: WaitId) -> Option<WaitId> {
        self.waits.get(id.0 as usize).copied()
    }
}

fn moved_frame(tables: &Tables, id: FrameId, frame: &Frame, modules: &[ModuleId]) -> Frame {
    match frame {
        Frame::Native {
            module,
            address,
            function,
        } => Frame::Native {
            module: modules
                .get(module.0 as usize)
                .copied()
                .unwrap_or(ModuleId(0)),
            address: *address,
            function: *function,
        },
        Frame::KernelCode(address) => {
            let names = tables.local_names.names.frames.get(&id);
            let name = names.and_then(|names| names.last()).map(|f| f.name.clone());
            Frame::Kernel(name.unwrap_or_else(|| format!("{:#x}", address.0)))
        }
        Frame::Unmapped(_) | Frame::Kernel(_) => frame.clone(),
    }
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
    fn take(&mut self, tables: &Tables, ids: &Ids, offset: u64) {
        let of = |id: &FrameId| ids.frames.get(id.0 as usize).copied();
        if let Some(symbols) = &tables.symbols {
            let frames = symbols.frames.iter();
            let moved = frames.filter_map(|(id, functions)| Some((of(id)?, functions.clone())));
            let all = self.symbols.get_or_insert_default();
            all.frames.extend(moved);
        }
        let mut later_names: BTreeMap<FrameId, Vec<LaterName>> = BTreeMap::new();
        for name in &tables.local_names.later {
            let Some(frame) = of(&name.frame) else {
                continue;
            };
            later_names.entry(frame).or_default().push(LaterName {
                frame,
                since: later(name.since, offset),
                functions: name.functions.clone(),
            });
        }
        for (id, frame) in (0..).map(FrameId).zip(&tables.frames) {
            let functions = tables.local_names.names.frames.get(&id);
            let may_have = match frame {
                // The same address may be code of another process in another source.
                Frame::Unmapped(_) => true,
                Frame::Native { .. } => functions.is_some(),
                // By name in any case.
                Frame::Kernel(_) | Frame::KernelCode(_) => false,
            };
            let Some(frame) = of(&id).filter(|_| may_have) else {
                continue;
            };
            let later = later_names.remove(&frame).unwrap_or_default();
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
