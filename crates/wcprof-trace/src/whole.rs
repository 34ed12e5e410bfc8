//! Tables in memory to a trace file.

use std::io::Write;

use crate::error::TraceError;
use crate::model::{
    Frame, FrameId, LockLook, LockOwner, Module, ModuleId, NodeId, ProcessId, Span, StackId,
    Tables, ThreadId, WaitId,
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
        for setup in &tables.origins.setups {
            self.add_setup(setup)?;
        }
        let mut ids = Ids::default();
        for process in &tables.processes {
            ids.processes.push(self.add_process(process.clone())?);
        }
        let process = |id: ProcessId| ids.processes[id.0 as usize];
        for (id, end) in &tables.origins.process_ends {
            self.process_ended(process(*id), end)?;
        }
        let mut modules: Vec<ModuleId> = Vec::new();
        for module in &tables.modules {
            modules.push(self.add_module(Module {
                process: process(module.process),
                ..module.clone()
            })?);
        }
        for thread in &tables.threads {
            let mut names = thread.names.iter();
            let (seen, name) = names
                .next()
                .map_or((thread.start, ""), |(seen, name)| (*seen, name));
            let id = self.add_thread(process(thread.process), thread.tid, seen, name)?;
            for (seen, name) in names {
                self.thread_name(id, *seen, name)?;
            }
            self.thread_seen(id, thread.start, thread.end, thread.n_ticks)?;
            ids.threads.push(id);
        }
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
            0 => Ok(ids),
            n => self.locks_skipped(n).map(|()| ids),
        }
    }
}
