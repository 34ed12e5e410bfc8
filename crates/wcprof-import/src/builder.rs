//! Names, stacks and threads to the tables of a trace, within limits.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use wcprof_trace::model::{
    Frame, FrameId, Header, Module, ModuleId, NodeId, Process, ProcessId, Span, Stack, StackId,
    StackNode, SymbolFrame, SymbolTable, Tables, Thread, ThreadId, Trace, WaitId,
};
use wcprof_types::{Avma, Pid, StackEnd, Tid, TimeNs, Wait};

use crate::error::ImportError;
use crate::limits;
use crate::options::Options;

/// A trace under construction.
#[derive(Debug)]
pub(crate) struct Builder {
    pub(crate) trace: Trace,
    frames: HashMap<Frame, u32>,
    names: HashMap<String, FrameId>,
    nodes: HashMap<StackNode, u32>,
    stacks: HashMap<Stack, u32>,
    waits: HashMap<Wait, u32>,
    symbols: SymbolTable,
    names_bytes: usize,
    /// Stacks that were cut at the leaf side.
    pub(crate) n_cut: u64,
}

impl Builder {
    /// An empty trace of an engine such as `folded`.
    pub(crate) fn new(engine: &str, options: &Options) -> Self {
        let source: String = options.name.chars().take(200).collect();
        let header = Header {
            wcprof_version: options.wcprof_version.clone(),
            engine: format!("imported from {engine}"),
            notes: vec![format!(
                "imported from {engine}, `{source}`; not recorded by wcprof"
            )],
            rate_hz: 0,
            host: String::new(),
            kernel: String::new(),
            n_cpus: 0,
            started_unix_ns: options.now_unix_ns,
        };
        Self {
            trace: Trace {
                tables: Tables::new(header),
                spans: Vec::new(),
            },
            frames: HashMap::new(),
            names: HashMap::new(),
            nodes: HashMap::new(),
            stacks: HashMap::new(),
            waits: HashMap::new(),
            symbols: SymbolTable::default(),
            names_bytes: 0,
            n_cut: 0,
        }
    }

    /// Adds a remark that every report shows.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.trace.tables.header.notes.push(text.into());
    }

    /// Adds a remark for each count that is not 0.
    pub(crate) fn note_counts<const N: usize>(&mut self, counts: [(u64, &str); N]) {
        for (n, what) in counts.into_iter().filter(|(n, _)| *n > 0) {
            self.note(format!("{n} {what}"));
        }
    }

    pub(crate) fn process(&mut self, pid: Pid, comm: &str) -> Result<ProcessId, ImportError> {
        let processes = &mut self.trace.tables.processes;
        let id = next_id(
            processes.len(),
            limits::MAX_THREADS,
            "the number of processes",
        )?;
        processes.push(Process {
            pid,
            comm: cut(comm).to_owned(),
            cmdline: Vec::new(),
            cgroup: String::new(),
        });
        Ok(ProcessId(id))
    }

    pub(crate) fn thread(
        &mut self,
        process: ProcessId,
        tid: Tid,
        name: &str,
    ) -> Result<ThreadId, ImportError> {
        let threads = &mut self.trace.tables.threads;
        let id = next_id(threads.len(), limits::MAX_THREADS, "the number of threads")?;
        threads.push(Thread {
            process,
            tid,
            names: vec![(TimeNs(0), cut(name).to_owned())],
            start: TimeNs(0),
            end: TimeNs(0),
            n_ticks: 0,
        });
        Ok(ThreadId(id))
    }

    pub(crate) fn module(&mut self, module: Module) -> Result<ModuleId, ImportError> {
        let modules = &mut self.trace.tables.modules;
        let id = next_id(modules.len(), limits::MAX_MAPPINGS, "the number of modules")?;
        modules.push(module);
        Ok(ModuleId(id))
    }

    pub(crate) fn frame(&mut self, frame: Frame) -> Result<FrameId, ImportError> {
        let limit = Limit("the number of functions", wcprof_trace::limits::MAX_FRAMES);
        let frames = &mut self.trace.tables.frames;
        intern(&mut self.frames, frames, frame, limit).map(FrameId)
    }

    /// A frame of which the source has nothing but the name.
    pub(crate) fn named(&mut self, name: &str) -> Result<FrameId, ImportError> {
        let name = cut(name);
        if let Some(&id) = self.names.get(name) {
            return Ok(id);
        }
        self.names_bytes = self.names_bytes.saturating_add(name.len());
        if self.names_bytes > limits::MAX_NAMES_BYTES {
            let limit = limits::MAX_NAMES_BYTES;
            return Err(ImportError::too_large("the size of all names", limit));
        }
        // Stands for no address: a number that makes it distinct, in a page that nothing maps.
        let id = self.frame(Frame::Unmapped(Avma(self.names.len() as u64 + 1)))?;
        self.names.insert(name.to_owned(), id);
        self.name_frame(id, name, is_symbol(name));
        Ok(id)
    }

    /// Gives a frame its name.
    pub(crate) fn name_frame(&mut self, frame: FrameId, name: &str, resolved: bool) {
        let function = SymbolFrame {
            name: cut(name).to_owned(),
            file: None,
            line: None,
            inlined: false,
            resolved,
        };
        self.symbols.frames.insert(frame, vec![function]);
    }

    /// The stack of these frames, root first. Frames beyond the limit are cut at the leaf side.
    pub(crate) fn stack(
        &mut self,
        root_first: impl IntoIterator<Item = FrameId>,
        end: StackEnd,
    ) -> Result<StackId, ImportError> {
        let mut leaf = None;
        for (n, frame) in root_first.into_iter().enumerate() {
            if n == limits::MAX_FRAMES {
                self.n_cut += 1;
                break;
            }
            let node = StackNode {
                caller: leaf,
                frame,
            };
            let limit = Limit("the number of places in stacks", limits::MAX_NODES);
            let nodes = &mut self.trace.tables.nodes;
            leaf = Some(NodeId(intern(&mut self.nodes, nodes, node, limit)?));
        }
        let limit = Limit("the number of stacks", wcprof_trace::limits::MAX_STACKS);
        let stacks = &mut self.trace.tables.stacks;
        intern(&mut self.stacks, stacks, Stack { leaf, end }, limit).map(StackId)
    }

    pub(crate) fn wait(&mut self, wait: Wait) -> Result<WaitId, ImportError> {
        let limit = Limit("the number of waits", usize::MAX);
        let waits = &mut self.trace.tables.waits;
        intern(&mut self.waits, waits, wait, limit).map(WaitId)
    }

    /// Adds a span, and counts it as observations of its thread.
    pub(crate) fn span(&mut self, span: Span) -> Result<(), ImportError> {
        if self.trace.spans.len() >= limits::MAX_SPANS {
            return Err(ImportError::too_large(
                "the number of samples",
                limits::MAX_SPANS,
            ));
        }
        let n = u64::from(span.n_samples);
        if let Some(thread) = self.trace.tables.threads.get_mut(span.thread.0 as usize) {
            thread.n_ticks = thread.n_ticks.saturating_add(n);
        }
        let stats = &mut self.trace.tables.stats;
        stats.n_observations = stats.n_observations.saturating_add(n);
        self.trace.spans.push(span);
        Ok(())
    }

    /// The trace. Spans come into the order of their ends.
    pub(crate) fn finish(mut self, duration: u64) -> Trace {
        if self.n_cut > 0 {
            self.note(format!(
                "{} stacks have more than {} frames and were cut at the leaf side",
                self.n_cut,
                limits::MAX_FRAMES
            ));
        }
        if !self.symbols.frames.is_empty() {
            self.trace.tables.names.symbols = Some(self.symbols);
        }
        self.trace.spans.sort_by_key(|s| s.end);
        let stats = &mut self.trace.tables.stats;
        stats.duration = TimeNs(duration);
        stats.end_reason = "imported".to_owned();
        stats.complete = true;
        self.trace
    }
}

/// What is limited, and the limit.
struct Limit(&'static str, usize);

/// The id of a value, which is added to `values` if it is new.
fn intern<T: Clone + Eq + Hash>(
    ids: &mut HashMap<T, u32>,
    values: &mut Vec<T>,
    value: T,
    Limit(what, limit): Limit,
) -> Result<u32, ImportError> {
    match ids.entry(value) {
        Entry::Occupied(known) => Ok(*known.get()),
        Entry::Vacant(new) => {
            let id = next_id(values.len(), limit, what)?;
            values.push(new.key().clone());
            Ok(*new.insert(id))
        }
    }
}

fn next_id(len: usize, limit: usize, what: &'static str) -> Result<u32, ImportError> {
    match u32::try_from(len) {
        Ok(id) if len < limit => Ok(id),
        _ => Err(ImportError::too_large(what, limit)),
    }
}

/// A name within the limit, cut at a character.
pub(crate) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(limits::MAX_NAME_BYTES)]
}

/// Whether a name comes from a symbol: not an address, a module and an offset, or a placeholder.
fn is_symbol(name: &str) -> bool {
    let is_hex = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let is_address = name.strip_prefix("0x").is_some_and(is_hex);
    let is_offset = name
        .rsplit_once("+0x")
        .is_some_and(|(file, digits)| file.contains('.') && is_hex(digits));
    !(is_address || is_offset || matches!(name, "???" | "??" | "[unknown]" | "" | "unknown"))
}
