//! Which stacks hold code that was replaced while it was recorded, and when.

use indexmap::IndexSet;
use wcprof_trace::FastState;
use wcprof_trace::model::{StackId, StackNode, Tables};
use wcprof_types::TimeNs;

use crate::functions::later_names;

/// Times that are gone through for all nodes together. Recordings have far fewer; this bounds what a forged
/// trace can cost. Beyond, a node has the times of its caller alone.
const MAX_TIMES: usize = 1 << 24;

/// Stacks with code that took the place of other code while it was recorded: when that was, in
/// order. Known only when a whole trace was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RenamedStacks {
    /// By stack: index into `times`.
    of_stack: Vec<u32>,
    /// Distinct lists; the first one is empty.
    times: Vec<Vec<TimeNs>>,
}

impl RenamedStacks {
    /// Those of a trace; most have none.
    pub fn from_tables(tables: &Tables) -> Self {
        if tables.names.local.later.is_empty() {
            return Self::default();
        }
        let mut times = IndexSet::<Vec<TimeNs>, FastState>::default();
        times.insert(Vec::new());
        let mut left = MAX_TIMES;
        // By node: the list of it and its callers. Those have smaller ids; of a forged one that has not, nothing is known.
        let mut of_node: Vec<u32> = Vec::with_capacity(tables.nodes.len());
        for node in &tables.nodes {
            let caller = node.caller.and_then(|id| of_node.get(id.0 as usize));
            let caller = caller.copied().unwrap_or_default();
            let new = with_own(tables, node, &times[caller as usize], &mut left);
            of_node.push(new.map_or(caller, |new| times.insert_full(new).0 as u32));
        }
        let leaves = tables.stacks.iter().map(|stack| stack.leaf);
        let of_leaf = leaves.map(|leaf| leaf.and_then(|id| of_node.get(id.0 as usize)));
        Self {
            of_stack: of_leaf
                .map(|list| list.copied().unwrap_or_default())
                .collect(),
            times: times.into_iter().collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.of_stack.iter().all(|list| *list == 0)
    }

    /// The last change of a stack's names until `time`.
    #[inline]
    pub(crate) fn since(&self, stack: Option<StackId>, time: TimeNs) -> TimeNs {
        let list = stack.and_then(|id| self.of_stack.get(id.0 as usize));
        let times = list.and_then(|list| self.times.get(*list as usize));
        let times = times.map_or(&[][..], Vec::as_slice);
        let n = times.partition_point(|&since| since <= time);
        times[..n].last().copied().unwrap_or_default()
    }
}

/// A node's times and those of its callers, in order; `None` if the node adds none. What is gone through is taken
/// from `left`, as long as there is enough.
fn with_own(
    tables: &Tables,
    node: &StackNode,
    of_callers: &[TimeNs],
    left: &mut usize,
) -> Option<Vec<TimeNs>> {
    let own = later_names(tables, node.frame)
        .iter()
        .map(|name| name.since);
    *left = left.checked_sub(own.len())?;
    if own
        .clone()
        .all(|time| of_callers.binary_search(&time).is_ok())
    {
        return None;
    }
    *left = left.checked_sub(of_callers.len())?;
    let mut times: Vec<TimeNs> = of_callers.iter().copied().chain(own).collect();
    times.sort_unstable();
    times.dedup();
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wcprof_trace::model::{FrameId, LaterName, NodeId, Stack};

    /// A chain of nodes, from the root on, each with its frame; a stack at each of these nodes; later names by frame and
    /// time.
    fn tables(frames: &[u32], leaves: &[u32], later: &[(u32, u64)]) -> Tables {
        let mut tables = Tables::default();
        let node = |(at, &frame): (u32, &u32)| StackNode {
            caller: at.checked_sub(1).map(NodeId),
            frame: FrameId(frame),
        };
        tables.nodes = (0..).zip(frames).map(node).collect();
        let stack = |&leaf: &u32| Stack {
            leaf: Some(NodeId(leaf)),
            ..Stack::default()
        };
        tables.stacks = leaves.iter().map(stack).collect();
        let name = |&(frame, since): &(u32, u64)| LaterName {
            frame: FrameId(frame),
            since: TimeNs(since),
            functions: Vec::new(),
        };
        tables.names.local.later = later.iter().map(name).collect();
        tables
    }

    /// Check that a stack has the times of all its frames, once each, and no others.
    #[test]
    fn times_of_stacks() {
        let later = [(1, 10), (1, 30), (3, 10), (3, 20), (4, 5)];
        let renamed = RenamedStacks::from_tables(&tables(&[0, 1, 2, 3], &[0, 1, 2, 3], &later));
        let times = |stack: u32| &renamed.times[renamed.of_stack[stack as usize] as usize];
        assert!(times(0).is_empty());
        assert_eq!(*times(1), [10, 30].map(TimeNs));
        assert_eq!(times(2), times(1));
        assert_eq!(*times(3), [10, 20, 30].map(TimeNs));
        let since = |stack, time| renamed.since(Some(StackId(stack)), TimeNs(time)).0;
        assert_eq!([since(3, 9), since(3, 29), since(1, 29)], [0, 20, 10]);
        assert_eq!([since(0, 99), since(7, 99)], [0, 0]);
        assert!(!renamed.is_empty());
        assert!(RenamedStacks::from_tables(&tables(&[0, 1], &[0], &later)).is_empty());
    }

    /// Check that stacks which share a long chain share its times: walked one by one, these would take 10^10 steps.
    #[test]
    fn long_chain() {
        const N: u32 = 100_000;
        let renamed = RenamedStacks::from_tables(&tables(
            &vec![0; N as usize],
            &vec![N - 1; N as usize],
            &[(0, 7)],
        ));
        assert_eq!(renamed.times, [vec![], vec![TimeNs(7)]]);
        assert!(renamed.of_stack.iter().all(|list| *list == 1));
    }

    /// Check that what frames with many later names cost is bounded, however they lie in stacks.
    #[test]
    fn many_later_names() {
        const N_EACH: u32 = 4_096;
        let kept = |n_frames: u32| {
            let frames: Vec<u32> = (0..n_frames).collect();
            let later = frames.iter().flat_map(|&frame| {
                (0..N_EACH).map(move |i| (frame, u64::from(frame * N_EACH + i)))
            });
            let later: Vec<_> = later.collect();
            let renamed = RenamedStacks::from_tables(&tables(&frames, &frames, &later));
            renamed.times.iter().map(Vec::len).sum::<usize>()
        };
        assert_eq!(kept(16), (1..=16).sum::<usize>() * N_EACH as usize);
        assert!(kept(256) <= MAX_TIMES);
    }
}
