//! Tables with a part missing, because its block is damaged, to ones in which every id has an entry: what is
//! lost is called so, and a stack ends where a lost part of it begins.

use std::collections::HashSet;

use foldhash::fast::RandomState as FastState;
use wcprof_types::{CounterName, StackEnd, Wait};

use crate::error::Malformed;
use crate::format::codec::{Sizes, Table};
use crate::format::wire::within;
use crate::limits::{FEW_LOST_ENTRIES, LOST_ENTRIES_PER_BYTE, MAX_LOST_ENTRIES};
use crate::model::{
    Frame, LOST_FRAME, Module, NodeId, Process, ProcessId, Stack, StackNode, Tables, Thread,
};

/// What lost names are called.
const LOST: &str = "[lost]";

/// What is known of lost entries.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    nodes: HashSet<NodeId, FastState>,
    /// Nodes that have a lost caller, or one of these.
    truncated: HashSet<NodeId, FastState>,
}

impl Lost {
    /// Brings tables to the sizes that they have where a block begins. They have them unless a block was lost.
    pub(crate) fn catch_up(&mut self, t: &mut Tables, sizes: &Sizes) -> Result<(), Malformed> {
        let found = Sizes::from_tables(t);
        let missing = |table: Table| sizes.get(table).checked_sub(found.get(table));
        let mut n_missing = 0;
        for table in Table::ALL {
            let may_lack = t.origins.unread.n_damaged > 0;
            let n = missing(table).filter(|n| *n == 0 || may_lack);
            n_missing += n.ok_or(Malformed::Gap {
                what: table.what(),
                found: sizes.get(table) as u64,
                expected: found.get(table) as u64,
            })?;
        }
        if n_missing == 0 {
            return Ok(());
        }
        // What others refer to is there if they are.
        let refers = |from: Table, to: Table| match sizes.get(from) > 0 && sizes.get(to) == 0 {
            true => Err(crate::format::wire::unknown_id(to.what(), 0, 0)),
            false => Ok(()),
        };
        refers(Table::Modules, Table::Processes)?;
        refers(Table::Threads, Table::Processes)?;
        refers(Table::Nodes, Table::Frames)?;
        let unread = &mut t.origins.unread;
        unread.n_lost_entries += n_missing as u64;
        let most = (unread.n_bytes as usize).saturating_mul(LOST_ENTRIES_PER_BYTE);
        let most = most.saturating_add(FEW_LOST_ENTRIES).min(MAX_LOST_ENTRIES);
        within("lost entries", unread.n_lost_entries, most)?;
        let lost_nodes = found.get(Table::Nodes)..sizes.get(Table::Nodes);
        self.nodes.extend(lost_nodes.map(|id| NodeId(id as u32)));
        fill(t, sizes);
        Ok(())
    }

    /// Lets no node from this one on have a lost caller.
    pub(crate) fn repair_nodes(&mut self, t: &mut Tables, from: usize) {
        if self.nodes.is_empty() {
            return;
        }
        for (id, node) in t.nodes.iter_mut().enumerate().skip(from) {
            let Some(caller) = node.caller else {
                continue;
            };
            let is_lost = self.nodes.contains(&caller);
            if is_lost {
                node.caller = None;
            }
            if is_lost || self.truncated.contains(&caller) {
                self.truncated.insert(NodeId(id as u32));
            }
        }
    }

    /// Says of the stacks from this one on which of them lack a part.
    pub(crate) fn repair_stacks(&self, t: &mut Tables, from: usize) {
        if self.nodes.is_empty() {
            return;
        }
        for stack in t.stacks.iter_mut().skip(from) {
            let Some(leaf) = stack.leaf else {
                continue;
            };
            if self.nodes.contains(&leaf) {
                (stack.leaf, stack.end) = (None, StackEnd::Lost);
            } else if self.truncated.contains(&leaf) {
                stack.end = StackEnd::Lost;
            }
        }
    }
}

/// Puts entries into the places of lost ones.
fn fill(t: &mut Tables, sizes: &Sizes) {
    let process = Process {
        comm: LOST.to_owned(),
        ..Process::default()
    };
    t.processes.resize(sizes.get(Table::Processes), process);
    let module = Module {
        path: LOST.to_owned(),
        ..Module::default()
    };
    t.modules.resize(sizes.get(Table::Modules), module);
    let thread = Thread::new(
        ProcessId(0),
        Default::default(),
        Default::default(),
        LOST.to_owned(),
    );
    t.threads.resize(sizes.get(Table::Threads), thread);
    let frame = Frame::Unknown(LOST_FRAME);
    t.frames.resize(sizes.get(Table::Frames), frame);
    // Nothing refers to these.
    t.nodes
        .resize(sizes.get(Table::Nodes), StackNode::default());
    let stack = Stack {
        leaf: None,
        end: StackEnd::Lost,
    };
    t.stacks.resize(sizes.get(Table::Stacks), stack);
    t.waits.resize(sizes.get(Table::Waits), Wait::default());
    let counter = CounterName {
        name: LOST.to_owned(),
        timed: false,
    };
    let counters = &mut t.origins.counters.names;
    counters.resize(sizes.get(Table::Counters), counter);
}
