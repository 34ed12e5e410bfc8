//! New threads that wait for their first look, which costs as much as hundreds of ticks of a known thread: its stack is
//! read, and files of it are opened.

use std::collections::HashMap;

use wcprof_types::{Sched, Tid};

use crate::batch::TargetId;
use crate::engine::{SnapshotStack, ThreadSnapshot};

/// A new thread as it was when an engine listed it last. Since then it has not run.
#[derive(Debug)]
struct Newcomer {
    snapshot: ThreadSnapshot,
    kernel: Vec<u8>,
    /// Number of the tick that listed it.
    tick: u64,
}

/// New threads by number.
#[derive(Debug, Default)]
pub(super) struct Newcomers(HashMap<Tid, Newcomer>);

impl Newcomers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes over what a tick says of a new thread, whose kernel stack is in `stacks`.
    pub(super) fn put(&mut self, snapshot: ThreadSnapshot, stacks: &[u8], tick: u64) {
        if let Some(known) = self.0.get_mut(&snapshot.tid)
            && known.is_repeated_by(&snapshot)
        {
            // Lists have no stacks.
            known.tick = tick;
            return;
        }
        let kernel = stacks.get(snapshot.kernel.clone()).unwrap_or_default();
        let newcomer = Newcomer {
            kernel: kernel.to_vec(),
            tick,
            snapshot,
        };
        self.0.insert(newcomer.snapshot.tid, newcomer);
    }

    /// Gives one as at the tick with this number, which was at `time`. Its kernel stack is appended to `stacks`.
    pub(super) fn take(
        &mut self,
        tick: u64,
        time: u64,
        stacks: &mut Vec<u8>,
    ) -> Option<ThreadSnapshot> {
        let tid = *self.0.keys().next()?;
        let newcomer = self.0.remove(&tid)?;
        let mut snapshot = newcomer.snapshot;
        if newcomer.tick != tick {
            snapshot.time = time;
        }
        snapshot.stack = SnapshotStack::None;
        snapshot.kernel = stacks.len()..stacks.len() + newcomer.kernel.len();
        stacks.extend(newcomer.kernel);
        Some(snapshot)
    }

    /// Forgets those that this tick, which listed all that exist, has not.
    pub(super) fn forget_unseen(&mut self, tick: u64) {
        self.0.retain(|_, newcomer| newcomer.tick == tick);
    }

    /// Forgets those of a process.
    pub(super) fn forget_target(&mut self, target: TargetId) {
        self.0
            .retain(|_, newcomer| newcomer.snapshot.target != target);
    }
}

impl Newcomer {
    fn is_repeated_by(&self, now: &ThreadSnapshot) -> bool {
        let key = |s: &ThreadSnapshot| (s.target, s.info.started, s.n_runs, s.counters.switches);
        let is_blocked = |s: &ThreadSnapshot| s.sched == Sched::Blocked;
        is_blocked(&self.snapshot) && is_blocked(now) && key(&self.snapshot) == key(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::tests::snapshot;
    use super::*;

    fn newcomer(tid: i32, n_runs: u64) -> ThreadSnapshot {
        ThreadSnapshot {
            tid: Tid(tid),
            n_runs,
            kernel: 1..3,
            ..snapshot()
        }
    }

    /// Check that a thread which waits keeps its kernel stack when a list without stacks repeats it, has the time of
    /// the tick that takes it, and is another one when it has run.
    #[test]
    fn first_look_later() {
        let mut newcomers = Newcomers::default();
        newcomers.put(newcomer(7, 3), &[1, 2, 3], 1);
        let listed = ThreadSnapshot {
            kernel: 0..0,
            ..newcomer(7, 3)
        };
        newcomers.put(listed.clone(), &[], 2);
        newcomers.forget_unseen(2);
        let mut stacks = vec![9];
        let taken = newcomers.take(3, 50, &mut stacks).unwrap();
        assert_eq!((taken.tid, taken.time, taken.kernel), (Tid(7), 50, 1..3));
        assert_eq!(stacks, [9, 2, 3]);
        assert_eq!(newcomers.take(3, 50, &mut stacks), None);

        newcomers.put(newcomer(7, 3), &[1, 2, 3], 3);
        newcomers.put(newcomer(7, 4), &[4, 5, 6], 4);
        let taken = newcomers.take(4, 60, &mut stacks).unwrap();
        assert_eq!((taken.n_runs, taken.time), (4, snapshot().time));
        assert_eq!(stacks, [9, 2, 3, 5, 6]);
    }

    /// Check that those which a whole list lacks, or whose process is gone, are forgotten.
    #[test]
    fn gone() {
        let mut newcomers = Newcomers::default();
        newcomers.put(newcomer(7, 3), &[0; 3], 1);
        newcomers.put(newcomer(8, 3), &[0; 3], 2);
        newcomers.forget_unseen(2);
        assert_eq!(newcomers.0.keys().collect::<Vec<_>>(), [&Tid(8)]);
        newcomers.forget_target(TargetId(1));
        assert_eq!(newcomers.len(), 1);
        newcomers.forget_target(TargetId(0));
        assert_eq!(newcomers.len(), 0);
    }
}
