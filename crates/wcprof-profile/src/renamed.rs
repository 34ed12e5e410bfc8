//! Which stacks hold code that was replaced while it was recorded, and when.

use std::collections::HashMap;

use wcprof_trace::model::{StackId, Tables};
use wcprof_types::TimeNs;

use crate::functions::later_names;

/// Stacks with code that took the place of other code while it was recorded: when that was, in
/// order. Known only when a whole trace was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RenamedStacks(HashMap<StackId, Vec<TimeNs>>);

impl RenamedStacks {
    /// Those of a trace; most have none.
    pub fn from_tables(tables: &Tables) -> Self {
        let mut stacks = HashMap::new();
        if tables.names.local.later.is_empty() {
            return Self(stacks);
        }
        for (id, stack) in (0..).map(StackId).zip(&tables.stacks) {
            let mut times = Vec::new();
            let mut next = stack.leaf;
            while let Some(node) = next.and_then(|id| tables.nodes.get(id.0 as usize)) {
                times.extend(later_names(tables, node.frame).iter().map(|n| n.since));
                // A caller has a smaller id, so that a forged chain cannot be a ring.
                next = node.caller.filter(|caller| Some(*caller) < next);
            }
            if !times.is_empty() {
                times.sort_unstable();
                times.dedup();
                stacks.insert(id, times);
            }
        }
        Self(stacks)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last change of a stack's names until `time`.
    #[inline]
    pub(crate) fn since(&self, stack: Option<StackId>, time: TimeNs) -> TimeNs {
        let times = stack.and_then(|id| self.0.get(&id));
        let times = times.map_or(&[][..], Vec::as_slice);
        let n = times.partition_point(|&since| since <= time);
        times[..n].last().copied().unwrap_or_default()
    }
}
