//! Stacks of a trace (chains of nodes, leaf first) to stacks of functions (root first).

use std::collections::HashMap;

use indexmap::IndexSet;
use wcprof_trace::FastState;
use wcprof_trace::model::StackId;
use wcprof_types::{StackEnd, TimeNs};

use crate::functions::Functions;
use crate::model::KERNEL;
use crate::model::{Function, FunctionId, ProfileStack, ProfileStackId};

/// Most functions kept of one stack. Recorded stacks are far shorter; this bounds what a forged
/// trace can cost.
const MAX_FUNCTIONS: usize = 16_384;
/// Innermost functions that every stack keeps.
const FEW_FUNCTIONS: usize = 64;
/// Functions beyond these that all stacks and rows keep together, counted for each again. A trace shares nodes, which
/// stacks and what is made of rows do not.
const MAX_MORE_FUNCTIONS: usize = 1 << 27;

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
    /// Kernel functions on the leaf side of a user stack are left out; a thread without one has no others.
    without_kernel: bool,
    /// Of [`MAX_MORE_FUNCTIONS`].
    left: usize,
}

impl<'a> Stacks<'a> {
    /// No stacks yet.
    pub(crate) fn new(functions: Functions<'a>, without_kernel: bool) -> Self {
        Self {
            functions,
            list: IndexSet::default(),
            of_trace: HashMap::default(),
            without_kernel,
            left: MAX_MORE_FUNCTIONS,
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

    /// A stack for one more row: itself, or what is left of it when rows have too many functions.
    pub(crate) fn of_row(&mut self, id: ProfileStackId) -> ProfileStackId {
        let frames = self.get(id).map_or(&[][..], |stack| &stack.frames);
        let more = frames.len().saturating_sub(FEW_FUNCTIONS);
        if more <= self.left {
            self.left -= more;
            return id;
        }
        let frames = frames[more..].to_vec();
        self.intern(ProfileStack {
            frames,
            end: StackEnd::TooManyFrames,
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
        let most = MAX_FUNCTIONS.min(FEW_FUNCTIONS + self.left);
        while let Some(id) = next
            && let Some(node) = tables.nodes.get(id.0 as usize)
        {
            frames.extend_from_slice(self.functions.of_frame(node.frame, time));
            if frames.len() > most {
                frames.truncate(most);
                end = StackEnd::TooManyFrames;
                break;
            }
            // A caller has a smaller id, so that a forged chain cannot be a ring.
            next = node.caller.filter(|caller| *caller < id);
        }
        self.left -= frames.len().saturating_sub(FEW_FUNCTIONS);
        frames.reverse();
        let is_root = |id: &FunctionId| self.functions.get(*id).is_some_and(is_root);
        if let Some(root) = frames.iter().rposition(is_root) {
            frames.drain(..root);
            end = StackEnd::Root;
        }
        if self.without_kernel && end != StackEnd::NoUserStack {
            match self.functions.n_without_kernel(&frames) {
                Some(n) => frames.truncate(n),
                // The innermost stays: it says where the thread is.
                None => frames = frames.split_off(frames.len().saturating_sub(1)),
            }
        }
        Some(ProfileStack { frames, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Detail;
    use wcprof_trace::model::{Frame, FrameId, NodeId, Stack, StackNode, Tables};
    use wcprof_types::Avma;

    /// Check that many long stacks which share their nodes have a bounded number of functions, that all keep their
    /// innermost ones, and that it is said which are cut; and the same of rows that share stacks.
    #[test]
    fn long_stacks() {
        const N: u32 = 2_000;
        let mut tables = Tables::default();
        for at in 0..MAX_FUNCTIONS as u32 + N {
            tables.frames.push(Frame::Unmapped(Avma(at.into())));
            tables.nodes.push(StackNode {
                caller: at.checked_sub(1).map(NodeId),
                frame: FrameId(at),
            });
        }
        // The first has the most functions that one may have.
        tables.stacks = (MAX_FUNCTIONS as u32 - 1..)
            .take(N as usize)
            .map(|leaf| Stack {
                leaf: Some(NodeId(leaf)),
                end: StackEnd::Root,
            })
            .collect();
        let functions = Functions::new(&tables, None, Detail::default());
        let mut stacks = Stacks::new(functions, false);
        let most = 20 * MAX_FUNCTIONS;
        stacks.left = most;
        let n_functions = |stacks: &Stacks<'_>| {
            let frames = stacks.list.iter().map(|stack| stack.frames.len());
            frames.sum::<usize>()
        };
        let mut ids = Vec::new();
        for at in 0..N {
            let id = stacks.of_trace(StackId(at), TimeNs(0)).expect("a stack");
            let stack = stacks.get(id).expect("it is known");
            let leaf = stack.frames.last().and_then(|f| stacks.functions.get(*f));
            let address = MAX_FUNCTIONS as u32 - 1 + at;
            assert_eq!(leaf.map(|f| &f.name), Some(&format!("{address:#x}")));
            let (n, end) = match at {
                0 => (MAX_FUNCTIONS, StackEnd::Root),
                1..20 => (MAX_FUNCTIONS, StackEnd::TooManyFrames),
                20 => (21 * FEW_FUNCTIONS, StackEnd::TooManyFrames),
                _ => (FEW_FUNCTIONS, StackEnd::TooManyFrames),
            };
            assert_eq!((stack.frames.len(), stack.end), (n, end), "{at}");
            ids.push(id);
        }
        assert!(n_functions(&stacks) <= most + N as usize * FEW_FUNCTIONS);
        stacks.left = MAX_FUNCTIONS;
        let short = [ids[0], ids[0], ids[99]].map(|id| stacks.of_row(id));
        assert_eq!([short[0], short[2]], [ids[0], ids[99]]);
        let stack = stacks.get(short[1]).expect("it is known");
        assert_eq!(stack.end, StackEnd::TooManyFrames);
        let whole = stacks.get(ids[0]).expect("it is known");
        assert_eq!(stack.frames, whole.frames[MAX_FUNCTIONS - FEW_FUNCTIONS..]);
    }
}
