//! The threads of the targets: what is remembered of each, and which are gone.

use std::collections::HashMap;

use wcprof_types::Tid;

use super::newcomers::Newcomers;
use super::slot::{SeenTick, Slot};
use crate::batch::ThreadTick;
use crate::engine::Comm;

/// An unchanged thread is mentioned at least this often, so that a cut trace lacks little.
const MENTION_NS: u64 = 1_000_000_000;

/// Whether a thread of this name is wanted.
pub type KeepThread = Box<dyn Fn(&str) -> bool + Send>;

#[derive(Default)]
pub(super) struct ThreadTable {
    pub(super) slots: HashMap<Tid, Slot>,
    pub(super) keep_thread: Option<KeepThread>,
    /// The last tick whose threads were taken in. A thread that it did not list was unchanged.
    pub(super) seen: SeenTick,
    /// Threads that the last tick took in for the first time.
    pub(super) n_new: usize,
    /// Those that wait for that.
    pub(super) newcomers: Newcomers,
    /// The last tick left some for later.
    pub(super) is_waiting: bool,
    /// When all unchanged threads were last handed on.
    pub(super) mentioned: u64,
    /// They are to be handed on at the next tick.
    pub(super) is_mention_wanted: bool,
}

impl ThreadTable {
    /// Whether a thread of this name is to be recorded.
    pub(super) fn keeps(&self, comm: Option<&Comm>) -> bool {
        let name = || comm.map_or(String::new(), Comm::name);
        self.keep_thread.as_ref().is_none_or(|keep| keep(&name()))
    }

    /// Whether unchanged threads have not been handed on for long, or are wanted now.
    pub(super) fn is_mention_due(&self, now: u64) -> bool {
        self.is_mention_wanted || now.saturating_sub(self.mentioned) >= MENTION_NS
    }

    /// Hands on what is known of threads that did not change for long.
    pub(super) fn mention(&mut self, to: &mut Vec<ThreadTick>) {
        self.mentioned = self.seen.time;
        self.is_mention_wanted = false;
        self.flush(to);
    }

    /// Hands on all unchanged ticks.
    pub(super) fn flush(&mut self, to: &mut Vec<ThreadTick>) {
        for slot in self.slots.values_mut() {
            slot.catch_up(self.seen);
            to.extend(slot.take_deferred());
        }
    }

    /// Of threads that this tick has not, nothing is known at it.
    pub(super) fn skip(&mut self, tick: u64) {
        for slot in self.slots.values_mut().filter(|slot| slot.tick != tick) {
            slot.catch_up(self.seen);
            slot.tick = tick;
        }
    }

    /// Threads that this tick, which listed all that exist, has not.
    pub(super) fn unseen_at(&self, tick: u64) -> Vec<Tid> {
        let unseen = |(&tid, slot): (&Tid, &Slot)| (slot.tick != tick).then_some(tid);
        self.slots.iter().filter_map(unseen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::tests::snapshot;
    use super::*;

    /// Check that a thread which is not seen at a tick is not taken for an unchanged one.
    #[test]
    fn skipped() {
        let n_handed_on = |is_skipped: bool| {
            let mut threads = ThreadTable::default();
            let thread = snapshot();
            threads
                .slots
                .insert(thread.tid, Slot::new(&thread, true, 1));
            if is_skipped {
                threads.skip(2);
            }
            threads.seen = SeenTick { number: 2, time: 9 };
            let mut handed_on = Vec::new();
            threads.flush(&mut handed_on);
            assert_eq!(threads.unseen_at(2).len(), 0);
            assert_eq!(threads.unseen_at(3).len(), 1);
            handed_on.len()
        };
        assert_eq!((n_handed_on(false), n_handed_on(true)), (1, 0));
    }
}
