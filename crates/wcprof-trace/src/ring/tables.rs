//! What spans in a ring refer to. What nothing refers to any more is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of;

use indexmap::IndexSet;
use wcprof_types::{CounterName, Tid, TimeNs, Wait};

use super::modules::RingModules;
use super::table::{IdSet, Table};
use crate::error::{Malformed, TraceError};
use crate::format::wire::unknown_id;
use crate::limits::STRING_BYTES;
use crate::model::{
    Frame, Module, ModuleId, Process, ProcessEnd, ProcessId, Stack, StackId, StackNode, Thread,
    ThreadId, WaitId,
};

/// A process, as long as it lives or something in the ring is of it.
#[derive(Clone, Debug)]
pub(super) struct RingProcess {
    pub(super) process: Process,
    pub(super) end: Option<ProcessEnd>,
    /// For how many it stands.
    pub(super) n_folded: Option<u32>,
}

impl RingProcess {
    fn bytes(&self) -> usize {
        let args = self.process.cmdline.iter().map(|arg| arg.len() + 24);
        let texts = self.process.comm.len() + self.process.cgroup.len();
        size_of::<Self>() + texts + args.sum::<usize>()
    }
}

/// A thread, as long as it lives or something in the ring is of it.
#[derive(Clone, Debug)]
pub(super) struct RingThread {
    pub(super) thread: Thread,
    pub(super) own_tid: Option<Tid>,
    pub(super) ended: bool,
}

impl RingThread {
    /// Bytes of memory of its names, about: texts of up to 16 bytes take as many.
    fn name_bytes(&self) -> usize {
        self.thread.names.capacity() * (STRING_BYTES + 16)
    }
}

/// All tables of a ring.
#[derive(Clone, Debug, Default)]
pub(super) struct RingTables {
    pub(super) processes: BTreeMap<ProcessId, RingProcess>,
    next_process: u32,
    pub(super) modules: RingModules,
    /// Modules of which no new frame will come.
    pub(super) unmapped: BTreeSet<ModuleId>,
    pub(super) threads: Vec<Option<RingThread>>,
    free_threads: Vec<u32>,
    pub(super) frames: Table<Frame>,
    pub(super) nodes: Table<StackNode>,
    pub(super) stacks: Table<Stack>,
    pub(super) waits: Table<Wait>,
    /// Names are few, and stay.
    pub(super) counters: IndexSet<CounterName>,
}

impl RingTables {
    pub(super) fn add_process(&mut self, process: Process) -> Result<ProcessId, TraceError> {
        let id = ProcessId(next(&mut self.next_process)?);
        let process = RingProcess {
            process,
            end: None,
            n_folded: None,
        };
        self.processes.insert(id, process);
        Ok(id)
    }

    pub(super) fn add_module(&mut self, module: Module) -> Result<ModuleId, TraceError> {
        self.modules.add(module)
    }

    pub(super) fn add_thread(&mut self, thread: Thread) -> Result<ThreadId, TraceError> {
        let thread = RingThread {
            thread,
            own_tid: None,
            ended: false,
        };
        let id = match self.free_threads.pop() {
            Some(id) => id,
            None => {
                self.threads.push(None);
                u32::try_from(self.threads.len() - 1).map_err(|_| Malformed::NumberTooLarge)?
            }
        };
        self.threads[id as usize] = Some(thread);
        Ok(ThreadId(id))
    }

    pub(super) fn thread(&mut self, id: ThreadId) -> Result<&mut RingThread, TraceError> {
        let len = self.threads.len();
        let known = self.threads.get_mut(id.0 as usize).and_then(Option::as_mut);
        Ok(known.ok_or_else(|| unknown_id("thread", id.0, len))?)
    }

    pub(super) fn end_process(&mut self, process: ProcessId, end: &ProcessEnd) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.end = Some(end.clone());
        }
        let threads = self.threads.iter_mut().flatten();
        for thread in threads.filter(|t| t.thread.process == process) {
            thread.ended = true;
        }
    }

    pub(super) fn fold_process(&mut self, process: ProcessId, n: u32) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.n_folded = Some(n);
        }
    }

    /// Bytes of memory, about.
    pub(super) fn bytes(&self) -> usize {
        let processes: usize = self.processes.values().map(RingProcess::bytes).sum();
        self.frames.bytes()
            + self.nodes.bytes()
            + self.stacks.bytes()
            + self.waits.bytes()
            + self.threads.capacity() * size_of::<Option<RingThread>>()
            + self
                .threads
                .iter()
                .flatten()
                .map(RingThread::name_bytes)
                .sum::<usize>()
            + processes
            + self.modules.bytes()
    }

    /// Forgets threads and processes that ended before `from`, where all that is kept begins;
    /// `is_used` tells threads of kept spans.
    pub(super) fn drop_ended(&mut self, from: TimeNs, is_used: impl Fn(u32) -> bool) {
        let mut populated = BTreeSet::new();
        for (id, slot) in (0..).zip(&mut self.threads) {
            if slot.as_ref().is_some_and(|t| t.ended && !is_used(id)) {
                *slot = None;
                self.free_threads.push(id);
            }
            populated.extend(slot.as_ref().map(|t| t.thread.process));
        }
        let n = self.processes.len();
        self.processes.retain(|id, process| {
            let ended = process.end.as_ref().is_some_and(|end| end.time <= from);
            !ended || populated.contains(id)
        });
        if self.processes.len() < n {
            let processes = &self.processes;
            self.modules
                .retain(|module| processes.contains_key(&module.process));
        }
    }

    /// Forgets stacks and waits that are not in use, and what only they refer to.
    pub(super) fn retain(&mut self, stacks: &IdSet, waits: &IdSet) {
        let (mut nodes, mut frames) = (IdSet::default(), IdSet::default());
        for &id in stacks {
            let mut next = self.stacks.get(id).and_then(|stack| stack.leaf);
            while let Some(node) = next
                && nodes.insert(node.0)
                && let Some(value) = self.nodes.get(node.0)
            {
                frames.insert(value.frame.0);
                next = value.caller;
            }
        }
        let used = frames.iter().filter_map(|id| match self.frames.get(*id)? {
            Frame::Native { module, .. } => Some(*module),
            _ => None,
        });
        let used: BTreeSet<ModuleId> = used.collect();
        let modules = &mut self.modules;
        self.unmapped.retain(|module| {
            let is_used = used.contains(module);
            if !is_used {
                modules.remove(*module);
            }
            is_used
        });
        self.stacks.retain(stacks);
        self.waits.retain(waits);
        self.nodes.retain(&nodes);
        self.frames.retain(&frames);
    }

    /// A copy of the values, to be read.
    pub(super) fn values(&self) -> Self {
        Self {
            processes: self.processes.clone(),
            modules: self.modules.clone(),
            threads: self.threads.clone(),
            frames: self.frames.copy(),
            nodes: self.nodes.copy(),
            stacks: self.stacks.copy(),
            waits: self.waits.copy(),
            counters: self.counters.clone(),
            ..Self::default()
        }
    }
}

/// Adds a stack and a wait, if there are any.
pub(super) fn add_place(
    (stack, wait): (Option<StackId>, Option<WaitId>),
    stacks: &mut IdSet,
    waits: &mut IdSet,
) {
    stacks.extend(stack.map(|id| id.0));
    waits.extend(wait.map(|id| id.0));
}

/// The next free id.
fn next(id: &mut u32) -> Result<u32, TraceError> {
    let free = *id;
    *id = free.checked_add(1).ok_or(Malformed::NumberTooLarge)?;
    Ok(free)
}
