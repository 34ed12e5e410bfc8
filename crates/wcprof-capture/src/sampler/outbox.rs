//! The batch that is being filled, and when it is handed on.

use std::sync::mpsc::{SyncSender, TrySendError};

use wcprof_types::Tid;

use super::clock::DueTick;
use super::links::SamplingEnd;
use crate::batch::{LockNotes, StackCopy, ThreadTick, TickBatch};
use crate::queue::Queue;

/// Ticks handed on at once: a fifth of a second at 99 Hz. Waking the recorder costs more than what it
/// does with a tick.
pub(super) const MAX_TICKS: usize = 20;
/// Bytes of stacks handed on at once.
const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) batch: TickBatch,
    /// Ticks in the batch.
    pub(super) n_ticks: usize,
    /// Something in it is wanted at once.
    pub(super) is_urgent: bool,
    queue: Queue,
}

impl Outbox {
    pub(super) fn begin_tick(&mut self, due: &DueTick) {
        let counts = &mut self.batch.counts;
        counts.n_ticks += 1;
        counts.n_late += u64::from(due.late);
        counts.n_missed += due.missed;
        self.batch.time = due.time;
        self.n_ticks += 1;
    }

    /// Several ticks make a batch, so that the receiver is woken less often.
    pub(super) fn is_due(&self) -> bool {
        self.n_ticks >= MAX_TICKS
            || self.batch.stacks.len() >= MAX_BYTES
            || self.is_urgent
            || !self.batch.process_cpu_ns.is_empty()
            || !self.batch.joined.is_empty()
    }

    /// Hands the batch on. Gives the threads whose observations were lost since the receiver is behind.
    pub(super) fn send(&mut self, to: &SyncSender<TickBatch>) -> Result<Vec<Tid>, SamplingEnd> {
        self.n_ticks = 0;
        self.is_urgent = false;
        // The next one will be about as large.
        let room = (self.batch.stacks.len(), self.batch.threads.len());
        let mut batch = std::mem::take(&mut self.batch);
        batch.queued = self.queue.take(batch.bytes());
        if batch.queued.is_none() {
            return Ok(self.take_back(batch));
        }
        self.batch.stacks.reserve(room.0);
        self.batch.threads.reserve(room.1);
        match to.try_send(batch) {
            Ok(()) => Ok(Vec::new()),
            Err(TrySendError::Full(batch)) => Ok(self.take_back(batch)),
            Err(TrySendError::Disconnected(_)) => Err(SamplingEnd::ReceiverGone),
        }
    }

    /// Counters are cumulative, so the next observation of a thread covers the time of the lost ones.
    /// Births, names, exits and what is known of processes are kept.
    fn take_back(&mut self, mut batch: TickBatch) -> Vec<Tid> {
        let lost = batch.threads.iter().map(|tick| tick.tid).collect();
        batch.queued = None;
        batch.counts.n_dropped_batches += 1;
        batch.counts.n_lost += batch.timer_samples.len() as u64;
        let is_kept = |tick: &ThreadTick| tick.since.is_some() || tick.comm.is_some();
        for (after, ..) in &mut batch.exited {
            let before = batch.threads.iter().take(*after);
            *after = before.filter(|tick| is_kept(tick)).count();
        }
        batch.threads.retain_mut(|tick| {
            if !matches!(tick.stack, StackCopy::Unchanged) {
                tick.stack = StackCopy::Torn;
            }
            is_kept(tick)
        });
        batch.timer_samples.clear();
        batch.locks = LockNotes::default();
        batch.stacks.clear();
        self.batch = batch;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::{tests::snapshot, tick_of};
    use super::*;
    use crate::batch::{Since, TargetId};

    /// Check that a batch without room is counted, and that what comes once is handed on later.
    #[test]
    fn no_room() {
        let (to, from) = std::sync::mpsc::sync_channel(1);
        let mut outbox = Outbox::default();
        let due = DueTick {
            time: 5,
            late: true,
            missed: 2,
        };
        let fill = |outbox: &mut Outbox, tid, since| {
            outbox.begin_tick(&due);
            let mut tick = tick_of(&snapshot());
            (tick.tid, tick.since) = (Tid(tid), since);
            outbox.batch.threads.push(tick);
            let after = outbox.batch.threads.len();
            outbox.batch.exited.push((after, TargetId(0), Tid(tid)));
            outbox.batch.stacks.push(1);
            outbox.send(&to).unwrap()
        };
        assert_eq!(fill(&mut outbox, 1, None), []);
        assert_eq!(fill(&mut outbox, 2, Some(Since::FirstTick)), [Tid(2)]);
        assert_eq!(fill(&mut outbox, 3, None), [Tid(2), Tid(3)]);
        assert_eq!(from.recv().unwrap().threads[0].tid, Tid(1));
        assert_eq!(fill(&mut outbox, 4, None), []);
        let batch = from.recv().unwrap();
        let tids: Vec<Tid> = batch.threads.iter().map(|tick| tick.tid).collect();
        assert_eq!((tids, batch.stacks.len()), (vec![Tid(2), Tid(4)], 1));
        let exited = [(1, 2), (1, 3), (2, 4)].map(|(after, tid)| (after, TargetId(0), Tid(tid)));
        assert_eq!(batch.exited, exited);
        let counts = batch.counts;
        assert_eq!(
            (counts.n_dropped_batches, counts.n_ticks, counts.n_missed),
            (2, 3, 6)
        );
        drop(batch);
        // A batch beyond the bytes that may wait is lost while another one waits, not for want of a place.
        let (to, from) = std::sync::mpsc::sync_channel(9);
        outbox.batch.stacks = vec![1; 128 << 20];
        assert!(outbox.send(&to).unwrap().is_empty());
        outbox.batch.threads = vec![tick_of(&snapshot())];
        assert_eq!(outbox.send(&to).unwrap(), [Tid(7)]);
        drop(from.recv().unwrap());
        assert_eq!(outbox.send(&to).unwrap(), []);
        drop(from);
        outbox.begin_tick(&due);
        assert!(matches!(outbox.send(&to), Err(SamplingEnd::ReceiverGone)));
    }
}
