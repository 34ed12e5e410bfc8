//! A snapshot to observations: which threads are new, changed, unchanged or gone.

use std::sync::Arc;

use wcprof_types::Tid;

use super::slot::{SeenTick, Slot};
use super::stacks::{PendingStacks, Retry};
use super::state::Sampler;
use crate::batch::{Since, StackCopy};
use crate::engine::{SnapshotStack, ThreadSnapshot};

impl Sampler {
    /// Takes in the snapshot of the tick that began at `now`, and reads the stacks that did not come with
    /// it.
    pub(super) fn take_snapshot(&mut self, now: u64) {
        let tick = SeenTick {
            number: self.threads.seen.number + 1,
            time: self.set.unlisted.map_or(now, |(_, time)| time),
        };
        let mut pending = PendingStacks::default();
        let mut n_seen = self.set.n_unlisted();
        self.threads.n_new = 0;
        let mut snapshots = std::mem::take(&mut self.set.threads);
        for snapshot in snapshots.drain(..) {
            // Of a process that has just left there may be some.
            if self.targets.get(snapshot.target).is_some() {
                n_seen += 1;
                self.take_thread(snapshot, tick.number, &mut pending);
            }
        }
        self.set.threads = snapshots;
        match (self.set.unlisted, self.set.incomplete) {
            (None, false) => self.threads.newcomers.forget_unseen(tick.number),
            // It was to have all threads (`BpfEngine::pass`).
            (None | Some((0, _)), true) => self.threads.skip(tick.number),
            (Some(_), _) => {}
        }
        self.take_newcomers(tick, &mut pending);
        let n_taken = n_seen.saturating_sub(self.threads.newcomers.len());
        self.outbox.batch.counts.n_observations += n_taken as u64;
        self.read_stacks(pending);
        self.notice_exits(n_seen, tick.number);
        self.budget
            .took_in(self.threads.n_new, self.n_waiting() > 0);
        let is_waiting = self.n_waiting() > 0;
        if std::mem::replace(&mut self.threads.is_waiting, is_waiting) && !is_waiting {
            // From here on all that live are known.
            self.read_cpu_clocks();
        }
        self.threads.seen = tick;
        if self.threads.is_mention_due(tick.time) {
            self.outbox.is_urgent |= self.threads.is_mention_wanted;
            self.outbox.batch.counts.is_settled = true;
            self.threads.mention(&mut self.outbox.batch.threads);
            // Names that others changed are noticed then.
            self.snapshots.want_list();
        }
    }

    fn take_thread(&mut self, now: ThreadSnapshot, tick: u64, pending: &mut PendingStacks) {
        let is_known = self
            .threads
            .slots
            .get(&now.tid)
            .map(|slot| slot.is_of(&now));
        if is_known == Some(false) {
            // A number that another thread had until now.
            self.forget_thread(now.tid);
        }
        if is_known != Some(true) {
            let stacks = &self.outbox.batch.stacks;
            self.threads.newcomers.put(now, stacks, tick);
            return;
        }
        self.observe(now, None, tick, pending);
    }

    /// Takes in as many new threads as the budget permits, as at this tick.
    fn take_newcomers(&mut self, tick: SeenTick, pending: &mut PendingStacks) {
        while self.threads.n_new < self.set.max_new {
            let stacks = &mut self.outbox.batch.stacks;
            let newcomer = self.threads.newcomers.take(tick.number, tick.time, stacks);
            let Some(now) = newcomer else { break };
            self.threads.n_new += 1;
            let since = self.take_birth(&now, tick.number);
            self.observe(now, Some(since), tick.number, pending);
        }
    }

    /// New threads that are left for later ticks.
    pub(super) fn n_waiting(&self) -> usize {
        self.threads.newcomers.len() + self.set.n_waiting
    }

    /// Takes in what a snapshot says of a thread that has a slot. `since`: from when on a new one is accounted.
    fn observe(
        &mut self,
        now: ThreadSnapshot,
        since: Option<Since>,
        tick: u64,
        pending: &mut PendingStacks,
    ) {
        let keep = self.threads.keeps(now.info.comm.as_ref());
        let Some(slot) = self.threads.slots.get_mut(&now.tid) else {
            return;
        };
        slot.catch_up(self.threads.seen);
        slot.tick = tick;
        if slot.is_renamed(&now) {
            slot.keep = keep;
        }
        if !slot.keep {
            return;
        }
        if since.is_none() && slot.unchanged(&now) {
            slot.defer(now.time, 1);
            return;
        }
        let batch = &mut self.outbox.batch;
        batch.threads.extend(slot.take_deferred());
        let pulse = Arc::clone(&self.targets.pulse);
        if let Some(observed) = self.targets.get_mut(now.target) {
            let _asking = pulse.state(observed.pid());
            observed.locks.waits(slot, &now);
            let plan = observed.plan_stack(self.kernel, self.snapshots.as_mut(), slot, &now);
            let is_torn = now.stack == SnapshotStack::Torn;
            batch.counts.n_torn += u64::from(is_torn);
            let index = batch.threads.len();
            match plan.read {
                Some(read) => pending.reads.push((index, read)),
                // A stack that is read by its own is asked for again when that turns out torn.
                None if plan.is_unproven && !is_torn => pending.retries.push(Retry {
                    index,
                    tid: now.tid,
                    torn: plan.stack == StackCopy::Torn,
                }),
                None => {}
            }
            let mut seen = slot.advance(now, since);
            (seen.wait, seen.stack, seen.kernel) = (plan.wait, plan.stack, plan.kernel);
            batch.threads.push(seen);
        }
    }

    /// Takes in a thread that was not seen before; from when on it is accounted.
    fn take_birth(&mut self, now: &ThreadSnapshot, tick: u64) -> Since {
        let keep = self.threads.keeps(now.info.comm.as_ref());
        let slot = Slot::new(now, keep, tick);
        self.threads.slots.insert(now.tid, slot);
        let mut is_older = tick == 1;
        if let Some(observed) = self.targets.get_mut(now.target) {
            let is_first_thread = observed.pid().0 == now.tid.0;
            is_older |= observed.entry.is_older(is_first_thread, now.info.started);
            let own = observed.locks.born(observed.target.pid(), now.tid);
            let own = own.map(|own| (now.target, now.tid, own));
            self.outbox.batch.own_tids.extend(own);
        }
        if let Some(perf) = &mut self.perf {
            // It is still observed, only its running stacks are not. Of older ones it was said at the start.
            if let Err(error) = perf.add_thread(now.tid)
                && !(is_older && perf.n_unwatched() > 0)
            {
                self.targets.pulse.lacks_timers(&error);
            }
        }
        match is_older {
            true => Since::FirstTick,
            false => Since::Birth(now.info.started),
        }
    }

    /// Forgets threads that a snapshot should have and does not.
    fn notice_exits(&mut self, n_seen: usize, tick: u64) {
        let n_known = self.threads.slots.len() + self.threads.newcomers.len();
        if n_seen == n_known || self.set.incomplete {
            return;
        }
        if self.set.n_unlisted() > 0 {
            // Which of them is gone, the next tick tells.
            self.snapshots.want_list();
            return;
        }
        for tid in self.threads.unseen_at(tick) {
            self.forget_thread(tid);
        }
    }

    /// Hands on what is known of a thread and forgets it.
    pub(super) fn forget_thread(&mut self, tid: Tid) {
        let Some(mut slot) = self.threads.slots.remove(&tid) else {
            return;
        };
        slot.catch_up(self.threads.seen);
        let batch = &mut self.outbox.batch;
        batch.threads.extend(slot.take_deferred());
        batch.exited.push((batch.threads.len(), slot.target, tid));
        if let Some(observed) = self.targets.get_mut(slot.target) {
            observed.locks.exited(tid, &slot);
        }
        self.snapshots.forget(tid);
        if let Some(perf) = &mut self.perf {
            perf.remove_thread(tid);
        }
    }
}
