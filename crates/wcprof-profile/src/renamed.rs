//! Which stacks hold code that was replaced while it was recorded, and when.

use wcprof_trace::StackSets;
use wcprof_trace::model::{FrameId, StackId, Tables};
use wcprof_types::TimeNs;

use crate::functions::later_names;

/// Stacks with code that took the place of other code while it was recorded: when that was.
/// Known only when a whole trace was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RenamedStacks(StackSets<TimeNs>);

impl RenamedStacks {
    /// Those of a trace; most have none.
    pub fn from_tables(tables: &Tables) -> Self {
        if tables.names.local.later.is_empty() {
            return Self::default();
        }
        let own = |frame: FrameId| later_names(tables, frame).iter().map(|name| name.since);
        Self(StackSets::new(tables, own))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last change of a stack's names until `time`.
    #[inline]
    pub(crate) fn since(&self, stack: Option<StackId>, time: TimeNs) -> TimeNs {
        let times = stack.map_or(&[][..], |stack| self.0.get(stack));
        let n = times.partition_point(|&since| since <= time);
        times[..n].last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wcprof_trace::model::{LaterName, NodeId, Stack, StackNode};

    /// Check when the names of a stack changed last, before, between and after its changes.
    #[test]
    fn since() {
        let mut tables = Tables::default();
        let node = |frame: u32| StackNode {
            caller: frame.checked_sub(1).map(NodeId),
            frame: FrameId(frame),
        };
        tables.nodes = (0..3).map(node).collect();
        let stack = |leaf| Stack {
            leaf: Some(NodeId(leaf)),
            ..Stack::default()
        };
        tables.stacks = (0..3).map(stack).collect();
        assert!(RenamedStacks::from_tables(&tables).is_empty());
        let name = |(frame, since)| LaterName {
            frame: FrameId(frame),
            since: TimeNs(since),
            functions: Vec::new(),
        };
        tables.names.local.later = [(1, 10), (1, 30), (2, 20)].map(name).to_vec();
        let renamed = RenamedStacks::from_tables(&tables);
        let since = |stack, time| renamed.since(Some(StackId(stack)), TimeNs(time)).0;
        assert_eq!([since(2, 9), since(2, 29), since(1, 29)], [0, 20, 10]);
        assert_eq!([since(0, 99), since(7, 99)], [0, 0]);
        assert!(!renamed.is_empty());
    }
}
