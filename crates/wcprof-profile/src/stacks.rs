//! Stacks of a trace (chains of nodes, leaf first) to stacks of functions (root first).

use std::collections::HashMap;

use wcprof_trace::FastState;
use wcprof_trace::model::{StackId, SymbolTable, Tables};
use wcprof_types::{StackEnd, TimeNs};

use crate::functions::{Functions, KERNEL};
use crate::model::{Function, FunctionId, ProfileStack, ProfileStackId};

/// Most functions kept of one stack. Recorded stacks are far shorter; this bounds what a forged
/// trace can cost.
const MAX_FUNCTIONS: usize = 16_384;

/// Interned stacks of functions, and the one of each trace stack met so far.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    pub(crate) list: Vec<ProfileStack>,
    ids: HashMap<ProfileStack, ProfileStackId, FastState>,
    of_trace: HashMap<(StackId, TimeNs), Option<ProfileStackId>, FastState>,
    /// Kernel functions below a user stack are left out.
    without_kernel: bool,
}

impl Stacks {
    pub(crate) fn new(without_kernel: bool) -> Self {
        Self {
            without_kernel,
            ..Self::default()
        }
    }

    /// The stack of functions of a trace stack at a time. `None` when the time has no stack at all: the
    /// thread ran where the engine could not see it, or the tables lack the stack.
    pub(crate) fn of_trace(
        &mut self,
        stack: StackId,
        time: TimeNs,
        functions: &mut Functions,
        tables: &Tables,
        symbols: Option<&SymbolTable>,
    ) -> Option<ProfileStackId> {
        if let Some(&id) = self.of_trace.get(&(stack, time)) {
            return id;
        }
        let id = expand(stack, time, functions, tables, symbols)
            .filter(|s| !(s.frames.is_empty() && s.end == StackEnd::NotSampled))
            .map(|mut s| {
                if self.without_kernel {
                    functions.drop_kernel(&mut s.frames);
                }
                self.intern(s)
            });
        self.of_trace.insert((stack, time), id);
        id
    }

    /// A stack of one kernel place, for a thread without a user stack.
    pub(crate) fn of_kernel_place(
        &mut self,
        place: &str,
        functions: &mut Functions,
    ) -> ProfileStackId {
        let function = functions.intern(Function {
            name: place.to_owned(),
            module: KERNEL.to_owned(),
            resolved: true,
            line: None,
        });
        self.intern(ProfileStack {
            frames: vec![function],
            end: StackEnd::NoUserStack,
        })
    }

    pub(crate) fn is_empty(&self, stack: ProfileStackId) -> bool {
        self.list
            .get(stack.0 as usize)
            .is_none_or(|s| s.frames.is_empty())
    }

    fn intern(&mut self, stack: ProfileStack) -> ProfileStackId {
        if let Some(&id) = self.ids.get(&stack) {
            return id;
        }
        let id = ProfileStackId(self.list.len() as u32);
        self.list.push(stack.clone());
        self.ids.insert(stack, id);
        id
    }
}

fn expand(
    stack: StackId,
    time: TimeNs,
    functions: &mut Functions,
    tables: &Tables,
    symbols: Option<&SymbolTable>,
) -> Option<ProfileStack> {
    let stack = tables.stacks.get(stack.0 as usize)?;
    let mut frames: Vec<FunctionId> = Vec::new();
    let mut end = stack.end;
    let mut next = stack.leaf;
    while let Some(id) = next {
        let Some(node) = tables.nodes.get(id.0 as usize) else {
            break;
        };
        frames.extend_from_slice(functions.of_frame(node.frame, time, tables, symbols));
        if frames.len() > MAX_FUNCTIONS {
            frames.truncate(MAX_FUNCTIONS);
            end = StackEnd::TooManyFrames;
            break;
        }
        // A caller has a smaller id, so that a forged chain cannot be a ring.
        next = node.caller.filter(|caller| *caller < id);
    }
    frames.reverse();
    Some(ProfileStack { frames, end })
}
