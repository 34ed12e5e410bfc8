//! Stack nodes to what the frames of each stack have together: a set a stack, in one pass over the nodes.

use std::hash::Hash;

use foldhash::fast::RandomState as FastState;
use indexmap::IndexSet;

use crate::model::{FrameId, StackId, Tables};

/// Items that are gone through for all nodes together. Recordings have far fewer; this bounds what a forged
/// trace can cost. Beyond, a node has the set of its caller alone.
const MAX_ITEMS: usize = 1 << 25;

/// A set for each stack; those that have the same share one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StackSets<T> {
    /// By stack: index into `sets`.
    of_stack: Vec<u32>,
    /// Distinct ones, each in order; the first one is empty.
    sets: Vec<Vec<T>>,
}

impl<T: Copy + Ord + Hash> StackSets<T> {
    /// What all frames of each stack have. `own` gives what a frame has.
    pub fn new<I>(tables: &Tables, own: impl Fn(FrameId) -> I) -> Self
    where
        I: ExactSizeIterator<Item = T> + Clone,
    {
        Self::within(MAX_ITEMS, tables, own)
    }

    fn within<I>(mut left: usize, tables: &Tables, own: impl Fn(FrameId) -> I) -> Self
    where
        I: ExactSizeIterator<Item = T> + Clone,
    {
        let mut sets = IndexSet::<Vec<T>, FastState>::default();
        sets.insert(Vec::new());
        // By node: the set of it and its callers. Those have smaller ids; of a forged one that has not, nothing is known.
        let mut of_node: Vec<u32> = Vec::with_capacity(tables.nodes.len());
        for node in &tables.nodes {
            let caller = node.caller.and_then(|id| of_node.get(id.0 as usize));
            let caller = caller.copied().unwrap_or_default();
            let new = with_own(own(node.frame), &sets[caller as usize], &mut left);
            of_node.push(new.map_or(caller, |new| sets.insert_full(new).0 as u32));
        }
        let leaves = tables.stacks.iter().map(|stack| stack.leaf);
        let of_leaf = leaves.map(|leaf| leaf.and_then(|id| of_node.get(id.0 as usize)));
        Self {
            of_stack: of_leaf
                .map(|set| set.copied().unwrap_or_default())
                .collect(),
            sets: sets.into_iter().collect(),
        }
    }
}

impl<T> StackSets<T> {
    /// Whether each is empty.
    pub fn is_empty(&self) -> bool {
        self.of_stack.iter().all(|set| *set == 0)
    }

    /// That of a stack, in order.
    #[inline]
    pub fn get(&self, stack: StackId) -> &[T] {
        let set = self.of_stack.get(stack.0 as usize);
        let set = set.and_then(|set| self.sets.get(*set as usize));
        set.map_or(&[], Vec::as_slice)
    }

    /// Each distinct set with the sum of what its stacks have.
    pub fn sums<'s>(
        &self,
        by_stack: impl IntoIterator<Item = (&'s StackId, &'s u64)>,
    ) -> impl Iterator<Item = (&[T], u64)> {
        let mut sums = vec![0_u64; self.sets.len()];
        for (stack, n) in by_stack {
            let set = self.of_stack.get(stack.0 as usize);
            if let Some(sum) = set.and_then(|set| sums.get_mut(*set as usize)) {
                *sum = sum.saturating_add(*n);
            }
        }
        self.sets.iter().map(Vec::as_slice).zip(sums)
    }
}

/// A node's items and those of its callers, in order; `None` if the node adds none. What is gone through is taken
/// from `left`, as long as there is enough.
fn with_own<T: Copy + Ord>(
    own: impl ExactSizeIterator<Item = T> + Clone,
    of_callers: &[T],
    left: &mut usize,
) -> Option<Vec<T>> {
    *left = left.checked_sub(own.len())?;
    if own
        .clone()
        .all(|item| of_callers.binary_search(&item).is_ok())
    {
        return None;
    }
    *left = left.checked_sub(of_callers.len())?;
    let mut items: Vec<T> = of_callers.iter().copied().chain(own).collect();
    items.sort_unstable();
    items.dedup();
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeId, Stack, StackNode};

    /// A chain of nodes, from the root on, each with its frame; a stack at each of these nodes.
    fn tables(
        frames: impl IntoIterator<Item = u32>,
        leaves: impl IntoIterator<Item = u32>,
    ) -> Tables {
        let node = |(at, frame): (u32, u32)| StackNode {
            caller: at.checked_sub(1).map(NodeId),
            frame: FrameId(frame),
        };
        let stack = |leaf| Stack {
            leaf: Some(NodeId(leaf)),
            ..Stack::default()
        };
        Tables {
            nodes: (0..).zip(frames).map(node).collect(),
            stacks: leaves.into_iter().map(stack).collect(),
            ..Tables::default()
        }
    }

    /// Check that a stack has the items of all its frames, once each, and no others.
    #[test]
    fn items_of_stacks() {
        let own: [&[u32]; 4] = [&[], &[30, 10], &[], &[20, 10]];
        let own = |frame: FrameId| own[frame.0 as usize].iter().copied();
        let sets = StackSets::new(&tables(0..4, 0..4), own);
        let all: Vec<&[u32]> = (0..5).map(|stack| sets.get(StackId(stack))).collect();
        let expected: [&[u32]; 5] = [&[], &[10, 30], &[10, 30], &[10, 20, 30], &[]];
        assert_eq!(all, expected);
        let sums = [(0, 1), (1, 2), (2, 4), (3, 8), (9, 16)].map(|(id, n)| (StackId(id), n));
        let sums: Vec<(&[u32], u64)> = sets.sums(sums.iter().map(|(id, n)| (id, n))).collect();
        assert_eq!(sums, [(expected[0], 1), (expected[1], 6), (expected[3], 8)]);
        assert!(!sets.is_empty());
        assert!(StackSets::new(&tables(0..4, [0]), own).is_empty());
    }

    /// Check that stacks which share a long chain share its set: walked one by one, these would take 10^10 steps.
    #[test]
    fn long_chain() {
        const N: u32 = 100_000;
        let tables = tables((0..N).map(|_| 0), (0..N).map(|_| N - 1));
        let sets = StackSets::new(&tables, |_| [7].into_iter());
        assert_eq!(sets.sets, [vec![], vec![7]]);
        assert!(sets.of_stack.iter().all(|set| *set == 1));
    }

    /// Check that what frames with many items cost is bounded, however they lie in stacks.
    #[test]
    fn many_items() {
        const LIMIT: usize = 1000;
        const N_EACH: usize = 10;
        let kept = |n_frames: u32| {
            let own = |frame: FrameId| (0..N_EACH).map(move |i| (frame, i));
            let sets = StackSets::within(LIMIT, &tables(0..n_frames, 0..n_frames), own);
            sets.sets.iter().map(Vec::len).sum::<usize>()
        };
        assert_eq!(kept(9), (1..=9).sum::<usize>() * N_EACH);
        assert!((LIMIT / 2..=LIMIT).contains(&kept(256)), "{}", kept(256));
    }
}
