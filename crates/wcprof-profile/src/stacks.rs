//! Stacks of a trace (chains of nodes, leaf first) to stacks of functions (root first).

use std::collections::HashMap;

use indexmap::IndexSet;
use wcprof_trace::FastState;
use wcprof_trace::model::StackId;
use wcprof_types::{StackEnd, TimeNs};

use crate::functions::{Functions, KERNEL};
use crate::model::{Function, FunctionId, ProfileStack, ProfileStackId};

/// Most functions kept of one stack. Recorded stacks are far shorter; this bounds what a forged
/// trace can cost.
const MAX_FUNCTIONS: usize = 16_384;

/// Whether a function begins a stack: those of Go's runtime that go on with another stack than that of their
/// caller (`runtime/asm_amd64.s`), where call frame information leads nowhere.
fn is_root(function: &Function) -> bool {
    let name = function.name.strip_prefix("runtime.");
    let name = name.map(|name| name.strip_suffix(".abi0").unwrap_or(name));
    matches!(
        name,
        Some("mcall" | "morestack" | "mstart" | "goexit" | "rt0_go")
    )
}

/// The stacks of functions of a trace's stacks, each once.
#[derive(Debug)]
pub(crate) struct Stacks<'a> {
    pub(crate) functions: Functions<'a>,
    list: IndexSet<ProfileStack, FastState>,
    of_trace: HashMap<(StackId, TimeNs), Option<ProfileStackId>, FastState>,
    /// Kernel functions on the leaf side of a user stack are left out.
    without_kernel: bool,
}

impl<'a> Stacks<'a> {
    /// No stacks yet.
    pub(crate) fn new(functions: Functions<'a>, without_kernel: bool) -> Self {
        Self {
            functions,
            list: IndexSet::default(),
            of_trace: HashMap::default(),
            without_kernel,
        }
    }

    pub(crate) fn get(&self, id: ProfileStackId) -> Option<&ProfileStack> {
        self.list.get_index(id.0 as usize)
    }

    /// All functions and all stacks, in the order of their ids.
    pub(crate) fn into_lists(self) -> (Vec<Function>, Vec<ProfileStack>) {
        (self.functions.into_list(), self.list.into_iter().collect())
    }

    /// The stack of functions of a trace stack at a time. `None` when the time has no stack at all: the
    /// thread ran where the engine could not see it, or the tables lack the stack.
    pub(crate) fn of_trace(&mut self, stack: StackId, time: TimeNs) -> Option<ProfileStackId> {
        if let Some(&id) = self.of_trace.get(&(stack, time)) {
            return id;
        }
        let is_sampled = |s: &ProfileStack| !s.frames.is_empty() || s.end != StackEnd::NotSampled;
        let expanded = self.expand(stack, time).filter(is_sampled);
        let id = expanded.map(|stack| self.intern(stack));
        self.of_trace.insert((stack, time), id);
        id
    }

    /// A stack of one kernel place, for a thread without a user stack.
    pub(crate) fn of_kernel_place(&mut self, place: &str) -> ProfileStackId {
        let function = self.functions.intern(Function {
            name: place.to_owned(),
            module: KERNEL.to_owned(),
            resolved: true,
            ..Function::default()
        });
        self.intern(ProfileStack {
            frames: vec![function],
            end: StackEnd::NoUserStack,
        })
    }

    fn intern(&mut self, stack: ProfileStack) -> ProfileStackId {
        ProfileStackId(self.list.insert_full(stack).0 as u32)
    }

    fn expand(&mut self, stack: StackId, time: TimeNs) -> Option<ProfileStack> {
        let tables = self.functions.tables;
        let stack = tables.stacks.get(stack.0 as usize)?;
        let mut frames: Vec<FunctionId> = Vec::new();
        let mut end = stack.end;
        let mut next = stack.leaf;
        while let Some(id) = next
            && let Some(node) = tables.nodes.get(id.0 as usize)
        {
            frames.extend_from_slice(self.functions.of_frame(node.frame, time));
            if frames.len() > MAX_FUNCTIONS {
                frames.truncate(MAX_FUNCTIONS);
                end = StackEnd::TooManyFrames;
                break;
            }
            // A caller has a smaller id, so that a forged chain cannot be a ring.
            next = node.caller.filter(|caller| *caller < id);
        }
        frames.reverse();
        let is_root = |id: &FunctionId| self.functions.get(*id).is_some_and(is_root);
        if let Some(root) = frames.iter().rposition(is_root) {
            frames.drain(..root);
            end = StackEnd::Root;
        }
        if self.without_kernel {
            match self.functions.n_without_kernel(&frames) {
                Some(n) => frames.truncate(n),
                // The innermost stays: it says where the thread is.
                None => frames = frames.split_off(frames.len().saturating_sub(1)),
            }
        }
        Some(ProfileStack { frames, end })
    }
}
