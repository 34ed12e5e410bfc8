//! The batch that is being filled, and when it is handed on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::mpsc::{SyncSender, TrySendError};

use wcprof_types::Tid;

use super::clock::DueTick;
use super::links::SamplingEnd;
use crate::batch::{LockNotes, Since, StackCopy, TargetId, ThreadTick, TickBatch};
use crate::queue::{self, Queue};

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
    /// Processes whose CPU clock is to be read when their threads have been looked at.
    pub(super) without_clock: Vec<TargetId>,
    queue: Queue,
}

impl Outbox {
    pub(super) fn begin_tick(&mut self, due: &DueTick) {
        let counts = &mut self.batch.counts;
        counts.n_ticks += 1;
        counts.n_late += u64::from(due.late);
        counts.n_missed += due.missed;
        counts.is_settled = false;
        self.batch.time = due.time;
        self.n_ticks += 1;
    }

    /// Whether a copy of so many bytes may be added. The stacks of one tick can be more than may wait at all.
    pub(super) fn has_room(&self, n_bytes: usize) -> bool {
        self.batch.stacks.len().saturating_add(n_bytes) <= queue::MAX_BYTES
    }

    /// Several ticks make a batch, so that the receiver is woken less often.
    pub(super) fn is_due(&self) -> bool {
        self.n_ticks >= MAX_TICKS
            || self.batch.stacks.len() >= MAX_BYTES
            || self.is_urgent
            || !self.batch.cpu_clocks.is_empty()
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
    /// Births, names, exits and what is known of processes are kept, but not of what came and went meanwhile: its CPU
    /// time is found by the clock of its process.
    fn take_back(&mut self, mut batch: TickBatch) -> Vec<Tid> {
        let lost = batch.threads.iter().map(|tick| tick.tid).collect();
        batch.queued = None;
        batch.counts.is_settled = false;
        batch.counts.n_dropped_batches += 1;
        batch.counts.n_lost += batch.timer_samples.len() as u64;
        let unseen = leave_out_processes(&mut batch);
        leave_out_threads(&mut batch, &unseen);
        for tick in &mut batch.threads {
            if !matches!(tick.stack, StackCopy::Unchanged) {
                tick.stack = StackCopy::Torn;
            }
        }
        batch.timer_samples.clear();
        batch.locks = LockNotes::default();
        batch.stacks.clear();
        batch.stacks.shrink_to(MAX_BYTES);
        self.batch = batch;
        lost
    }
}

/// Leaves out processes that joined and ended in a batch, and gives them. Of the clocks of each other one the first and
/// the last reading stay.
fn leave_out_processes(batch: &mut TickBatch) -> HashSet<TargetId> {
    let ended: HashSet<TargetId> = batch.ended.iter().map(|(id, ..)| *id).collect();
    let joined = batch.joined.iter().map(|(id, _)| *id);
    let unseen: HashSet<TargetId> = joined.filter(|id| ended.contains(id)).collect();
    batch.counts.n_left_out += unseen.len() as u64;
    batch.joined.retain(|(id, _)| !unseen.contains(id));
    batch.ended.retain(|(id, ..)| !unseen.contains(id));
    let mut clocks = BTreeMap::new();
    for &clock in &batch.cpu_clocks {
        clocks.entry(clock.target).or_insert((clock, clock)).1 = clock;
    }
    let clocks = clocks.into_iter().filter(|(id, _)| !unseen.contains(id));
    let clocks = clocks.flat_map(|(_, (first, last))| [first, last]);
    batch.cpu_clocks = clocks.collect();
    batch.cpu_clocks.dedup();
    unseen
}

/// Leaves the births, names and exits of a batch, but for threads that were born and exited in it, and those of
/// `unseen` processes.
fn leave_out_threads(batch: &mut TickBatch, unseen: &HashSet<TargetId>) {
    let is_kept = |tick: &ThreadTick| {
        (tick.since.is_some() || tick.comm.is_some()) && !unseen.contains(&tick.target)
    };
    let mut kept: Vec<bool> = batch.threads.iter().map(is_kept).collect();
    // Of those that live, the observations that are kept.
    let mut born: HashMap<(TargetId, Tid), Vec<usize>> = HashMap::new();
    let mut exits = std::mem::take(&mut batch.exited).into_iter().peekable();
    for at in 0..=batch.threads.len() {
        while let Some(exit) = exits.next_if(|(after, ..)| *after <= at) {
            let (_, target, tid) = exit;
            match born.remove(&(target, tid)) {
                Some(ticks) => ticks.into_iter().for_each(|at| kept[at] = false),
                None if unseen.contains(&target) => {}
                None => batch.exited.push(exit),
            }
        }
        let Some(tick) = batch.threads.get(at).filter(|_| kept[at]) else {
            continue;
        };
        let thread = (tick.target, tick.tid);
        if let Some(Since::Birth(_)) = tick.since {
            born.insert(thread, vec![at]);
        } else if let Some(ticks) = born.get_mut(&thread) {
            ticks.push(at);
        }
    }
    let (mut at, mut n_kept) = (0, 0);
    for (after, ..) in &mut batch.exited {
        n_kept += kept[at..*after].iter().filter(|is| **is).count();
        (at, *after) = (*after, n_kept);
    }
    let mut kept = kept.into_iter();
    batch.threads.retain(|_| kept.next() == Some(true));
    // The last of each: numbers are used again.
    let births = batch.threads.iter().filter(|tick| tick.since.is_some());
    let mut births: HashSet<_> = births.map(|tick| (tick.target, tick.tid)).collect();
    batch.own_tids.reverse();
    batch
        .own_tids
        .retain(|(target, tid, _)| births.remove(&(*target, *tid)));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wcprof_host::Target;
    use wcprof_types::Pid;

    use super::super::slot::{tests::snapshot, tick_of};
    use super::*;
    use crate::batch::CpuClock;
    use crate::batch::TargetEnd;

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

    /// Check that while nothing is taken, a hundred thousand threads and processes that come and go are not kept, and
    /// that what lives on is.
    #[test]
    fn coming_and_going() {
        let (to, from) = std::sync::mpsc::sync_channel(1);
        let own = Arc::new(Target::open(Pid(std::process::id() as i32)).unwrap());
        let mut outbox = Outbox::default();
        let target = TargetId(0);
        let tick = |target, tid| {
            let mut tick = tick_of(&snapshot());
            (tick.target, tick.tid) = (target, Tid(tid));
            tick
        };
        let birth = |target, tid| {
            let since = Some(Since::Birth(1));
            ThreadTick {
                since,
                ..tick(target, tid)
            }
        };
        let clock = |target, cpu_ns| CpuClock {
            target,
            cpu_ns,
            unseen_ns: 0,
        };
        to.send(TickBatch::default()).unwrap();
        // A thread that was known before, and its number used again.
        outbox.batch.exited.push((0, target, Tid(5)));
        outbox.batch.threads.push(birth(target, 5));
        outbox.batch.own_tids.push((target, Tid(5), Tid(1)));
        for n in 1..=100_000 {
            let batch = &mut outbox.batch;
            let mut renamed = tick(target, 6);
            renamed.comm = Some("new".to_owned());
            batch.threads.extend([birth(target, 6), renamed]);
            batch.own_tids.push((target, Tid(6), Tid(2)));
            batch.exited.push((batch.threads.len(), target, Tid(6)));
            batch.cpu_clocks.push(clock(target, n));
            let child = TargetId(n as u32);
            batch.joined.push((child, Arc::clone(&own)));
            batch.threads.push(birth(child, 7));
            batch.cpu_clocks.push(clock(child, 0));
            batch.ended.push((child, TargetEnd::Exited, 5));
            outbox.send(&to).unwrap();
        }
        outbox.batch.exited.push((1, target, Tid(8)));
        assert!(from.recv().unwrap().threads.is_empty());
        assert_eq!(outbox.send(&to).unwrap(), []);
        let batch = from.recv().unwrap();
        assert_eq!(batch.threads.len(), 1);
        assert_eq!(batch.threads[0].tid, Tid(5));
        let exited = [(0, target, Tid(5)), (1, target, Tid(8))];
        assert_eq!(batch.exited, exited);
        assert_eq!(batch.own_tids, [(target, Tid(5), Tid(1))]);
        assert_eq!(batch.cpu_clocks, [clock(target, 1), clock(target, 100_000)]);
        assert!(batch.joined.is_empty() && batch.ended.is_empty());
        assert_eq!(batch.counts.n_left_out, 100_000);
    }
}
