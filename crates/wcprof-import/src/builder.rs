//! Names, stacks and threads to the tables of a trace, within limits.

use std::collections::HashMap;

use wcprof_trace::limits::MAX_PROCESSES;
use wcprof_trace::model::{
    Frame, FrameId, Header, Module, ModuleId, NodeId, Process, ProcessId, Span, Stack, StackId,
    StackNode, SymbolFrame, SymbolTable, Tables, Thread, ThreadId, Trace,
};
use wcprof_types::{Avma, Pid, StackEnd, Tid, TimeNs};

use crate::error::{Result, within};
use crate::interned::{DistinctValues, next_id};
use crate::limits;
use crate::options::Options;

/// A trace under construction. Its frames, nodes and stacks are in sets of their own until the end.
pub(crate) struct Builder {
    pub(crate) trace: Trace,
    frames: DistinctValues<Frame>,
    nodes: DistinctValues<StackNode>,
    stacks: DistinctValues<Stack>,
    /// Frames of which the source has nothing but a name.
    names: HashMap<String, FrameId>,
    names_bytes: usize,
    symbols: SymbolTable,
    /// Stacks that were cut at the leaf side.
    n_cut: u64,
    /// The same, since all stacks have too many places.
    n_without_room: u64,
    /// How often a name was beyond the limits.
    n_other: u64,
}

/// What stands for the address of a function of which only the name is known: equal names of several imports, which may be
/// merged, have the same, others do not. No processor has such addresses. FNV-1a.
fn address_of(name: &str) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    1 << 62 | hash >> 2
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
            started_unix_ns: options.now_unix_ns,
            ..Header::default()
        };
        Self {
            trace: Trace {
                tables: Tables::new(header),
                spans: Vec::new(),
            },
            frames: DistinctValues::default(),
            nodes: DistinctValues::default(),
            stacks: DistinctValues::default(),
            names: HashMap::new(),
            names_bytes: 0,
            symbols: SymbolTable::default(),
            n_cut: 0,
            n_without_room: 0,
            n_other: 0,
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

    pub(crate) fn process(&mut self, pid: Pid, comm: &str) -> Result<ProcessId> {
        let processes = &mut self.trace.tables.processes;
        let what = "the number of processes";
        let id = next_id(processes.len(), MAX_PROCESSES, what)?;
        processes.push(Process {
            pid,
            comm: cut(comm).to_owned(),
            cmdline: Vec::new(),
            cgroup: String::new(),
            birth: String::new(),
        });
        Ok(ProcessId(id))
    }

    pub(crate) fn thread(&mut self, process: ProcessId, tid: Tid, name: &str) -> Result<ThreadId> {
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

    pub(crate) fn module(&mut self, module: Module) -> Result<ModuleId> {
        let modules = &mut self.trace.tables.modules;
        let id = next_id(modules.len(), limits::MAX_MAPPINGS, "the number of modules")?;
        modules.push(module);
        Ok(ModuleId(id))
    }

    pub(crate) fn frame(&mut self, frame: Frame) -> Result<FrameId> {
        let limit = wcprof_trace::limits::MAX_FRAMES;
        let what = "the number of functions";
        self.frames.intern(frame, limit, what).map(FrameId)
    }

    /// A frame of which the source has nothing but the name. Names beyond the limits share one frame.
    pub(crate) fn named(&mut self, name: &str) -> Result<FrameId> {
        let mut name = cut(name);
        if let Some(&known) = self.names.get(name) {
            return Ok(known);
        }
        let bytes = self.names_bytes.saturating_add(name.len());
        if self.names.len() >= limits::MAX_NAMES || bytes > limits::MAX_NAMES_BYTES {
            self.n_other += 1;
            name = limits::OTHER;
            if let Some(&known) = self.names.get(name) {
                return Ok(known);
            }
        }
        self.names_bytes = self.names_bytes.saturating_add(name.len());
        let mut address = address_of(name);
        while self.frames.contains(&Frame::Unmapped(Avma(address))) {
            address += 1;
        }
        let id = self.frame(Frame::Unmapped(Avma(address)))?;
        self.names.insert(name.to_owned(), id);
        let function = SymbolFrame {
            name: name.to_owned(),
            file: None,
            line: None,
            inlined: false,
            resolved: is_symbol(name),
        };
        self.symbols.frames.insert(id, vec![function]);
        Ok(id)
    }

    /// Names a frame whose code is in no file.
    pub(crate) fn name_locally(&mut self, frame: FrameId, name: SymbolFrame) {
        let local = &mut self.trace.tables.names.local;
        local.names.frames.insert(frame, vec![name]);
    }

    /// The stack of these frames, root first. Frames beyond the limit are cut at the leaf side.
    pub(crate) fn stack(
        &mut self,
        root_first: impl IntoIterator<Item = FrameId>,
        end: StackEnd,
    ) -> Result<StackId> {
        let mut caller = None;
        for (n, frame) in root_first.into_iter().enumerate() {
            if n == limits::MAX_FRAMES {
                self.n_cut += 1;
                break;
            }
            let node = StackNode { caller, frame };
            if self.nodes.len() >= limits::MAX_NODES && !self.nodes.contains(&node) {
                self.n_without_room += 1;
                break;
            }
            let what = "the number of places in stacks";
            let id = self.nodes.intern(node, limits::MAX_NODES, what)?;
            caller = Some(NodeId(id));
        }
        let stack = Stack { leaf: caller, end };
        let limit = wcprof_trace::limits::MAX_STACKS;
        let what = "the number of stacks";
        self.stacks.intern(stack, limit, what).map(StackId)
    }

    /// Adds a span, and counts it as observations of its thread.
    pub(crate) fn span(&mut self, span: Span) -> Result<()> {
        let n_spans = self.trace.spans.len() + 1;
        within(n_spans, limits::MAX_SPANS, "the number of samples")?;
        self.count_samples(span.thread, span.n_samples);
        self.trace.spans.push(span);
        Ok(())
    }

    /// Counts observations of a thread.
    pub(crate) fn count_samples(&mut self, thread: ThreadId, n: u32) {
        let n = u64::from(n);
        let thread = &mut self.trace.tables.threads[thread.0 as usize];
        thread.n_ticks = thread.n_ticks.saturating_add(n);
        let stats = &mut self.trace.tables.stats;
        stats.n_observations = stats.n_observations.saturating_add(n);
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
        let (cut, other) = (
            format!(
                "stacks were cut at the leaf side: all have more than {} places",
                limits::MAX_NODES
            ),
            format!(
                "frames are {}: there are more than {} names, or {} MiB of them",
                limits::OTHER,
                limits::MAX_NAMES,
                limits::MAX_NAMES_BYTES >> 20
            ),
        );
        self.note_counts([(self.n_without_room, &cut), (self.n_other, &other)]);
        if !self.symbols.frames.is_empty() {
            self.trace.tables.names.symbols = Some(self.symbols);
        }
        let tables = &mut self.trace.tables;
        tables.frames = self.frames.into_values();
        tables.nodes = self.nodes.into_values();
        tables.stacks = self.stacks.into_values();
        self.trace.spans.sort_by_key(|s| s.end);
        let stats = &mut self.trace.tables.stats;
        stats.duration = TimeNs(duration);
        stats.end_reason = "imported".to_owned();
        stats.complete = true;
        self.trace
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
    let is_unknown = name.starts_with("?? (");
    let is_unknown = is_unknown || matches!(name, "???" | "??" | "[unknown]" | "" | "unknown");
    !(is_address || is_offset || is_unknown)
}
