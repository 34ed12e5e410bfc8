//! Tables in memory to a trace file.

use std::collections::HashMap;
use std::io::Write;

use wcprof_types::{Avma, Tid, TimeNs};

use crate::error::TraceError;
use crate::model::{
    CounterId, CounterReading, Frame, FrameId, LockLook, LockOwner, Module, ModuleId, NodeId,
    ProcessId, Span, StackId, Tables, ThreadId, WaitId,
};
use crate::sink::TraceSink;
use crate::writer::TraceWriter;

/// The ids in a trace of the entries of tables that were added to it, by their ids in the tables.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    /// Processes.
    pub processes: Vec<ProcessId>,
    /// Threads.
    pub threads: Vec<ThreadId>,
    /// Frames.
    pub frames: Vec<FrameId>,
    /// Stacks.
    pub stacks: Vec<StackId>,
    /// Waits.
    pub waits: Vec<WaitId>,
}

impl Ids {
    /// A span with the ids of the trace; `None` for one of a thread that the tables lack.
    pub fn span(&self, span: &Span) -> Option<Span> {
        Some(Span {
            thread: *self.threads.get(span.thread.0 as usize)?,
            stack: span
                .stack
                .and_then(|id| self.stacks.get(id.0 as usize).copied()),
            wait: span
                .wait
                .and_then(|id| self.waits.get(id.0 as usize).copied()),
            ..*span
        })
    }
}

/// What tables added before have of processes that later ones may have, too.
#[derive(Debug, Default)]
pub(crate) struct Known {
    modules: HashMap<Module, ModuleId>,
    threads: HashMap<(ProcessId, Tid), KnownThread>,
}

#[derive(Debug)]
struct KnownThread {
    id: ThreadId,
    /// The last one.
    name: String,
    start: TimeNs,
    n_ticks: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Adds all that the spans of a trace refer to, and what was seen of locks: everything but
    /// spans, names of functions, sources and statistics. In a new writer, ids are those of `tables`.
    ///
    /// # Errors
    /// When writing fails, or the trace would pass a limit.
    ///
    /// # Panics
    /// When an entry refers to one that the tables lack; a reader refuses such traces.
    pub fn add_tables(&mut self, tables: &Tables) -> Result<Ids, TraceError> {
        self.add_joined_tables(tables, |_| None, &mut Known::default())
    }

    /// Adds the same to a new writer, which does not remember what it interns, so that no entry takes memory: what is interned later gets
    /// an id of its own.
    ///
    /// # Errors
    /// As [`add_tables`](Self::add_tables).
    ///
    /// # Panics
    /// As [`add_tables`](Self::add_tables).
    pub fn add_tables_once(&mut self, tables: &Tables) -> Result<(), TraceError> {
        self.remembers = false;
        let added = self.add_tables(tables);
        self.remembers = true;
        added.map(drop)
    }

    /// The same for tables of which `joined` gives the processes that the trace has already: their modules and
    /// threads may be `known` from tables that were added before.
    pub(crate) fn add_joined_tables(
        &mut self,
        tables: &Tables,
        joined: impl Fn(ProcessId) -> Option<ProcessId>,
        known: &mut Known,
    ) -> Result<Ids, TraceError> {
        for setup in &tables.origins.setups {
            self.add_setup(setup)?;
        }
        let mut ids = Ids::default();
        for (id, process) in (0..).map(ProcessId).zip(&tables.processes) {
            ids.processes.push(match joined(id) {
                Some(known) => known,
                None => self.add_process(process.clone())?,
            });
        }
        for (id, end) in &tables.origins.process_ends {
            self.process_ended(ids.processes[id.0 as usize], end)?;
        }
        for (id, n) in &tables.origins.folded {
            self.process_folded(ids.processes[id.0 as usize], *n)?;
        }
        let modules = self.add_modules(tables, &ids, known)?;
        self.add_threads(tables, &mut ids, known)?;
        self.add_stacks(tables, &modules, &mut ids)?;
        self.add_locks(tables, &ids)?;
        self.add_counters(tables, &ids)?;
        for reading in &tables.origins.accounts {
            self.accounts(reading.clone())?;
        }
        Ok(ids)
    }

    /// Adds the modules that are not known; the ids of all.
    fn add_modules(
        &mut self,
        tables: &Tables,
        ids: &Ids,
        known: &mut Known,
    ) -> Result<Vec<ModuleId>, TraceError> {
        let mut modules = Vec::new();
        let mut found = Vec::new();
        for module in &tables.modules {
            let module = Module {
                process: ids.processes[module.process.0 as usize],
                ..module.clone()
            };
            // Its file can be deleted in between, and more of it be mapped.
            let identity = Module {
                end: Avma(0),
                deleted: false,
                ..module.clone()
            };
            let id = match known.modules.get(&identity) {
                Some(id) => *id,
                None => self.add_module(module)?,
            };
            modules.push(id);
            found.push((identity, id));
        }
        known.modules.extend(found);
        Ok(modules)
    }

    /// Adds the threads that are not known, and what is new of those that are.
    fn add_threads(
        &mut self,
        tables: &Tables,
        ids: &mut Ids,
        known: &mut Known,
    ) -> Result<(), TraceError> {
        let mut found = Vec::new();
        for thread in &tables.threads {
            let process = ids.processes[thread.process.0 as usize];
            let mut names = thread.names.iter();
            let (seen, name) = names
                .next()
                .map_or((thread.start, ""), |(seen, name)| (*seen, name));
            let before = known.threads.get(&(process, thread.tid));
            // A thread that has another name by then may be another one, with a tid that became free.
            let before = before.filter(|before| before.name == name);
            let id = match before {
                Some(before) => before.id,
                None => self.add_thread(process, thread.tid, seen, name)?,
            };
            for (seen, name) in names {
                self.thread_name(id, *seen, name)?;
            }
            let (start, n_before) = before.map_or((thread.start, 0), |b| (b.start, b.n_ticks));
            let n_ticks = thread.n_ticks.saturating_add(n_before);
            self.thread_seen(id, start, thread.end, n_ticks)?;
            ids.threads.push(id);
            let name = thread.name().to_owned();
            let now = KnownThread {
                id,
                name,
                start,
                n_ticks,
            };
            found.push(((process, thread.tid), now));
        }
        known.threads.extend(found);
        Ok(())
    }

    fn add_stacks(
        &mut self,
        tables: &Tables,
        modules: &[ModuleId],
        ids: &mut Ids,
    ) -> Result<(), TraceError> {
        for frame in &tables.frames {
            let mut frame = frame.clone();
            if let Frame::Native { module, .. } = &mut frame {
                *module = modules[module.0 as usize];
            }
            ids.frames.push(self.intern_frame(frame)?);
        }
        let mut nodes: Vec<NodeId> = Vec::new();
        for node in &tables.nodes {
            let caller = node.caller.map(|id| nodes[id.0 as usize]);
            nodes.push(self.intern_node(caller, ids.frames[node.frame.0 as usize])?);
        }
        for stack in &tables.stacks {
            let leaf = stack.leaf.map(|id| nodes[id.0 as usize]);
            ids.stacks.push(self.intern_leaf(leaf, stack.end)?);
        }
        for wait in &tables.waits {
            ids.waits.push(self.intern_wait(wait.clone())?);
        }
        Ok(())
    }

    fn add_counters(&mut self, tables: &Tables, ids: &Ids) -> Result<(), TraceError> {
        let facts = &tables.origins.counters;
        let names = facts.names.iter().map(|name| self.intern_counter(name));
        let names = names.collect::<Result<Vec<CounterId>, _>>()?;
        facts.readings.iter().try_for_each(|reading| {
            let values = reading.values.iter();
            self.counters(&CounterReading {
                process: ids.processes[reading.process.0 as usize],
                time: reading.time,
                values: values
                    .map(|(id, value)| (names[id.0 as usize], *value))
                    .collect(),
            })
        })
    }

    fn add_locks(&mut self, tables: &Tables, ids: &Ids) -> Result<(), TraceError> {
        for (thread, own) in &tables.locks.own_tids {
            self.own_tid(ids.threads[thread.0 as usize], *own)?;
        }
        for look in &tables.locks.looks {
            let owners = look.owners.iter().map(|owner| LockOwner {
                thread: ids.threads[owner.thread.0 as usize],
                stack: owner.stack.map(|id| ids.stacks[id.0 as usize]),
                wait: owner.wait.map(|id| ids.waits[id.0 as usize]),
                ..*owner
            });
            self.lock_look(&LockLook {
                process: ids.processes[look.process.0 as usize],
                owners: owners.collect(),
                ..look.clone()
            })?;
        }
        for (thread, tick) in &tables.locks.moved {
            self.waiter_moved(ids.threads[thread.0 as usize], *tick)?;
        }
        match tables.locks.n_skipped {
            0 => Ok(()),
            n => self.locks_skipped(n),
        }
    }
}
