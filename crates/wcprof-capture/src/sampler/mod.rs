//! The sampling loop: at each tick one snapshot of all threads of the targets, copies of the stacks that can
//! have changed, and the timer samples of running threads. Never unwinds, never writes to disk.

mod batch;
mod children;
mod clock;
mod copy;
mod locks;
mod members;
mod slot;
mod stack_map;
mod start;
mod targets;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::Duration;

use wcprof_types::{Avma, Tid};

use crate::tid_map::TidMap;

pub use batch::{
    KernelStack, Since, StackBytes, StackCopy, TargetEnd, TargetId, ThreadTick, TickBatch,
    TickCounts, TimerSample,
};
pub use locks::{LockGlance, OwnerGlance};
pub(crate) use start::{DUMP_BYTES, OWN_FILES};
pub use start::{KeepThread, Sampler, SamplerOptions, StartError};

use crate::engine::{Comm, SnapshotError, SnapshotSet, SnapshotStack, ThreadSnapshot};
use crate::sys::sampling_cpu_ns;
use clock::{DueTick, TickClock};
use copy::Again;
use slot::Slot;
use wcprof_host::clock::monotonic_ns;
use wcprof_perf::PerfSampler;

/// An unchanged thread is mentioned at least this often, so that a cut trace lacks little.
const MENTION_NS: u64 = 1_000_000_000;
/// The target's identity (exec, exit, pid reuse) is checked this often.
const IDENTITY_NS: u64 = 100_000_000;
/// Ticks handed on at once: a fifth of a second at 99 Hz. Waking the recorder costs more than what it
/// does with a tick.
const MAX_TICKS: u32 = 20;
/// Timer samples that wait in the rings for other ticks, all of which can be in one: half of its room.
const MAX_HELD_SAMPLES: u32 = 7;
/// After a sample that is deeper than its copy the next are read at once for so long: the rest of the stack is read
/// while it is still there.
const DEEP_NS: u64 = 1_000_000_000;
/// Bytes of stacks handed on at once.
const MAX_BYTES: usize = 1 << 20;
/// wcprof's own CPU use and the target's CPU clock are read this often.
const ACCOUNT_NS: u64 = 1_000_000_000;

/// Why sampling ended.
#[derive(Debug)]
pub enum SamplingEnd {
    /// The time asked for is over.
    Duration,
    /// The caller asked it to stop.
    Stopped,
    /// The last target has exited.
    TargetExited,
    /// The last target runs another program now.
    TargetExec,
    /// The receiver of batches is gone.
    ReceiverGone,
    /// A snapshot failed.
    Failed(SnapshotError),
}

/// How much of a thread's stack its unwinding needs: more than was copied, or less.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StackRequest {
    /// Whose.
    pub tid: Tid,
    /// Bytes from the stack pointer upward; `None`: as many as before.
    pub bytes: Option<usize>,
    /// First address after what is needed, for stack pointers below it in the same mapping.
    pub end: Option<Avma>,
}

/// What a running sampler is connected to.
#[derive(Debug)]
pub struct SamplerLinks<'a> {
    /// Set to end the recording.
    pub stop: &'a AtomicBool,
    /// Ends the recording by itself after this long.
    pub duration: Option<Duration>,
    /// Where batches go.
    pub batches: SyncSender<TickBatch>,
    /// Requests for longer copies.
    pub requests: Receiver<StackRequest>,
}

impl Sampler {
    /// Samples until the end. Call it on a thread of its own: it raises that thread's priority.
    pub fn run(mut self, links: &SamplerLinks<'_>) -> SamplingEnd {
        if let Some(perf) = &mut self.perf
            && let Err(error) = perf.start()
        {
            return SamplingEnd::Failed(error.into());
        }
        let begin = monotonic_ns();
        let mut run = Run {
            clock: TickClock::new(self.interval(), begin),
            slots: TidMap::default(),
            set: SnapshotSet::default(),
            batch: TickBatch::default(),
            counts: TickCounts::default(),
            tick: 0,
            last_identity: begin,
            last_exit_check: begin,
            account: (begin, sampling_cpu_ns()),
            last_end: None,
            n_waiting: 0,
            deep_sample: false,
            deep_until: 0,
            clocks_read: false,
            unlisted: (0, begin),
            mentioned: begin,
            resend: false,
            last_look: begin,
            held: Vec::new(),
            links,
        };
        let mut now = begin;
        let mut end = loop {
            if links.stop.load(Ordering::Relaxed) {
                break SamplingEnd::Stopped;
            }
            let over = links
                .duration
                .is_some_and(|d| now - begin >= d.as_nanos() as u64);
            if over {
                break SamplingEnd::Duration;
            }
            if !run.clock.wait(now) {
                now = monotonic_ns();
                continue;
            }
            match self.begin_tick(&mut run) {
                Ok(time) => now = time,
                Err(end) => break end,
            }
        };
        if let Err(last) = self.take_held(&mut run) {
            end = last;
        }
        self.last_batch(&mut run);
        end
    }

    fn interval(&self) -> Duration {
        Duration::from_nanos(1_000_000_000 / u64::from(self.rate_hz.max(1)))
    }

    /// Takes a snapshot and, unless it can wait for later ones, all that follows from it. Gives when it
    /// began.
    fn begin_tick(&mut self, run: &mut Run<'_>) -> Result<u64, SamplingEnd> {
        if self.can_wait(run)
            && let Some(held) = self.snapshots.hold().map_err(SamplingEnd::Failed)?
        {
            let due = run.clock.due(held.time);
            run.held.push(due);
            if held.urgent || held.n_samples >= run.max_held_samples(held.time) {
                self.take_held(run)?;
            }
            return Ok(held.time);
        }
        self.take_held(run)?;
        let due = run.clock.due(monotonic_ns());
        run.begin(&due);
        self.take_requests(run);
        if std::mem::take(&mut run.resend) {
            self.snapshots.want_full();
        }
        self.admit_children(run, due.time);
        self.snapshots
            .snapshot(&mut run.set, &mut run.batch.stacks)
            .map_err(SamplingEnd::Failed)?;
        self.end_tick(run, &due, true)?;
        Ok(due.time)
    }

    /// Whether nothing is to be done at the next tick that cannot be done a few ticks later.
    fn can_wait(&self, run: &Run<'_>) -> bool {
        let now = run.clock.deadline();
        let n_waiting = run.n_waiting as usize + run.held.len();
        run.tick > 0
            && self.births.is_none()
            && !run.resend
            && n_waiting + 1 < MAX_TICKS as usize
            && now.saturating_sub(run.last_exit_check) < IDENTITY_NS
            && now.saturating_sub(run.mentioned) < MENTION_NS
            && now.saturating_sub(run.account.0) < ACCOUNT_NS
            && self.perf.as_ref().is_none_or(PerfSampler::is_filtered)
            && self.targets.iter().all(|(_, o)| !o.locks.is_looking())
    }

    /// Does what follows from the snapshots that were put off, each as at its own tick.
    fn take_held(&mut self, run: &mut Run<'_>) -> Result<(), SamplingEnd> {
        if run.held.is_empty() {
            return Ok(());
        }
        self.take_requests(run);
        let held = std::mem::take(&mut run.held);
        for (i, due) in held.iter().enumerate() {
            run.begin(due);
            self.snapshots
                .take_held(&mut run.set, &mut run.batch.stacks)
                .map_err(SamplingEnd::Failed)?;
            self.end_tick(run, due, i + 1 == held.len())?;
        }
        run.held = held;
        run.held.clear();
        Ok(())
    }

    /// What follows from a snapshot, the last of all that were taken or one before.
    fn end_tick(
        &mut self,
        run: &mut Run<'_>,
        due: &DueTick,
        is_last: bool,
    ) -> Result<(), SamplingEnd> {
        self.check_members(run, due.time)?;
        self.take_snapshots(run);
        self.notice_exits(run);
        self.look_at_locks(run);
        if is_last {
            self.drain_timer_samples(run);
            if run.deep_sample {
                run.deep_until = due.time + DEEP_NS;
            }
        }
        let mut account = run.tick == 1;
        if due.time.saturating_sub(run.account.0) >= ACCOUNT_NS {
            self.keep_to_budget(run, due.time);
            account = true;
        }
        if account {
            self.read_cpu_clocks(run);
        }
        // Not before the samples of all ticks in it are there.
        if is_last && run.is_due() {
            run.send()?;
        }
        Ok(())
    }

    fn take_requests(&mut self, run: &mut Run<'_>) {
        let mut grown = false;
        while let Ok(request) = run.links.requests.try_recv() {
            if let Some(slot) = run.slots.get_mut(&request.tid)
                && slot.resize(&request)
            {
                grown = true;
                if let Some((host_tid, want)) = slot.grown_want() {
                    self.snapshots.want_stack(host_tid, &want);
                }
            }
        }
        if grown {
            self.snapshots.want_full();
        }
    }

    fn take_snapshots(&mut self, run: &mut Run<'_>) {
        let n_unlisted = run.set.unlisted.map_or(0, |(n, _)| n);
        let n = run.set.full.len() + run.set.unchanged.len() + n_unlisted;
        run.counts.n_observations += n as u64;
        let mut lost_track = false;
        for &(tid, time) in &run.set.unchanged {
            match run.slots.get_mut(&tid) {
                Some(slot) => {
                    slot.tick = run.tick;
                    slot.catch_up(run.unlisted.0, run.unlisted.1);
                    if slot.keep {
                        slot.defer(time);
                        run.batch.threads.extend(slot.take_stale(MENTION_NS));
                    }
                }
                None => lost_track = true,
            }
        }
        if lost_track {
            self.snapshots.want_full();
        }
        let first_tick = run.tick == 1;
        let before = run.unlisted;
        if let Some((_, time)) = run.set.unlisted {
            run.unlisted = (before.0 + 1, time);
        }
        let mut full = std::mem::take(&mut run.set.full);
        self.n_full = 0;
        for snapshot in full.drain(..) {
            // Of a process that has just left there may be some.
            if self.targets.get(snapshot.target).is_some() {
                self.n_full += 1;
                self.take_snapshot(run, snapshot, before, first_tick);
            }
        }
        run.set.full = full;
        self.copy_stacks(run);
        self.mention_unlisted(run);
    }

    /// Hands on what is known of threads that were not listed for long.
    fn mention_unlisted(&mut self, run: &mut Run<'_>) {
        let (n, time) = run.unlisted;
        if run.set.unlisted.is_none() || time.saturating_sub(run.mentioned) < MENTION_NS {
            return;
        }
        run.mentioned = time;
        // Names that others changed are noticed then.
        self.snapshots.want_list();
        for slot in run.slots.values_mut() {
            slot.catch_up(n, time);
            if slot.keep {
                run.batch.threads.extend(slot.take_deferred());
            }
        }
    }

    /// `unlisted`: the ticks before this one at which unchanged threads were not listed, and when
    /// the last was.
    fn take_snapshot(
        &mut self,
        run: &mut Run<'_>,
        now: ThreadSnapshot,
        unlisted: (u64, u64),
        first_tick: bool,
    ) {
        let mut since = None;
        if run
            .slots
            .get(&now.tid)
            .is_some_and(|s| s.target != now.target)
        {
            // A number that a thread of another process had until now.
            self.forget_thread(run, now.tid);
        }
        let slot = match run.slots.entry(now.tid) {
            std::collections::hash_map::Entry::Occupied(slot) => slot.into_mut(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let keep = self.keeps(now.comm.as_ref());
                let is_older = self
                    .targets
                    .get(now.target)
                    .is_some_and(|t| t.rejoined && t.pid().0 == now.tid.0);
                since = Some(match first_tick || is_older {
                    true => Since::FirstTick,
                    false => Since::Birth(now.started),
                });
                if let Some(perf) = &mut self.perf {
                    // A thread that has exited meanwhile, or one descriptor too many: it is still
                    // observed, only its running stacks are not.
                    let _ = perf.add_thread(now.tid);
                }
                if let Some(observed) = self.targets.get_mut(now.target) {
                    let own = observed.locks.born(observed.target.pid(), now.tid);
                    let own = own.map(|own| (now.target, now.tid, own));
                    run.batch.own_tids.extend(own);
                }
                vacant.insert(Slot::new(&now, keep, run.tick, run.unlisted.0))
            }
        };
        slot.tick = run.tick;
        slot.catch_up(unlisted.0, unlisted.1);
        slot.listed(run.unlisted.0);
        if slot.is_renamed(&now) {
            slot.keep = self.keeps(now.comm.as_ref());
        }
        if !slot.keep {
            return;
        }
        if since.is_none() && slot.unchanged(&now) {
            slot.defer(now.time);
            run.batch.threads.extend(slot.take_stale(MENTION_NS));
            return;
        }
        run.batch.threads.extend(slot.take_deferred());
        if let Some(observed) = self.targets.get_mut(now.target) {
            observed.locks.waits(slot, &now);
        }
        let job = self.copy_job(slot, &now);
        let is_torn = now.stack == SnapshotStack::Torn;
        run.counts.n_torn += u64::from(is_torn);
        let mut tick = slot.advance(now, since);
        tick.wait = job.wait;
        tick.stack = job.stack;
        tick.kernel = job.kernel;
        let (index, tid) = (run.batch.threads.len(), tick.tid);
        match job.read {
            Some(mut read) => {
                read.index = index;
                self.copies.push(read);
            }
            // A stack that is read by its own is asked for again when that turns out torn.
            None if job.unnamed && !is_torn => self.again.push(Again {
                index,
                tid,
                torn: false,
            }),
            None => {}
        }
        run.batch.threads.push(tick);
    }

    /// Whether a thread of this name is to be recorded.
    fn keeps(&self, comm: Option<&Comm>) -> bool {
        let name = || comm.map_or(String::new(), Comm::name);
        self.keep_thread.as_ref().is_none_or(|keep| keep(&name()))
    }

    fn notice_exits(&mut self, run: &mut Run<'_>) {
        let n_unlisted = run.set.unlisted.map_or(0, |(n, _)| n);
        let n_seen = run.set.unchanged.len() + self.n_full + n_unlisted;
        if n_seen == run.slots.len() || run.set.incomplete {
            return;
        }
        if n_unlisted > 0 {
            // Which of them is gone, the next tick tells.
            self.snapshots.want_list();
            return;
        }
        let tick = run.tick;
        let gone = run.slots.iter().filter(|(_, slot)| slot.tick != tick);
        let gone: Vec<Tid> = gone.map(|(&tid, _)| tid).collect();
        for tid in gone {
            self.forget_thread(run, tid);
        }
    }

    /// Lowers the rate when wcprof would use more than its share of a core.
    fn keep_to_budget(&mut self, run: &mut Run<'_>, now: u64) {
        let cpu = sampling_cpu_ns();
        let wall = now.saturating_sub(run.account.0).max(1);
        let used = cpu.saturating_sub(run.account.1) as f64 / wall as f64 * 100.0;
        run.account = (now, cpu);
        let budget = f64::from(self.max_cpu_percent);
        if used <= budget || self.rate_hz <= 1 {
            return;
        }
        // Aim below the budget, or noise would lower the rate again and again.
        let rate = (f64::from(self.rate_hz) * budget / used * 0.9) as u32;
        self.rate_hz = rate.clamp(1, self.rate_hz - 1);
        run.clock.set_interval(self.interval(), now);
        if let Some(perf) = &mut self.perf {
            // The old period stays where the kernel refuses: more samples than asked for.
            let _ = perf.set_period(start::timer_period_ns(self.rate_hz));
        }
        run.counts.new_rate_hz = Some(self.rate_hz);
    }

    /// Hands on what was held back, and the samples since the last tick.
    fn last_batch(&mut self, run: &mut Run<'_>) {
        run.batch.time = monotonic_ns();
        self.drain_timer_samples(run);
        let (n, time) = run.unlisted;
        for slot in run.slots.values_mut().filter(|slot| slot.keep) {
            slot.catch_up(n, time);
            run.batch.threads.extend(slot.take_deferred());
        }
        self.read_cpu_clocks(run);
        run.batch.counts = std::mem::take(&mut run.counts);
        // Waits for room: nothing may be lost at the end. A receiver that is gone needs nothing.
        let _ = run.links.batches.send(std::mem::take(&mut run.batch));
    }
}

/// State of one recording.
struct Run<'a> {
    clock: TickClock,
    slots: TidMap<Slot>,
    set: SnapshotSet,
    batch: TickBatch,
    counts: TickCounts,
    tick: u64,
    last_identity: u64,
    last_exit_check: u64,
    /// When the own CPU time was last read, and what it was.
    account: (u64, u64),
    /// How the last process left.
    last_end: Option<TargetEnd>,
    /// Ticks in the batch.
    n_waiting: u32,
    /// A sample in it is deeper than its copy.
    deep_sample: bool,
    /// Until then samples are not held back, since there were deep ones.
    deep_until: u64,
    /// The clocks of processes were read: threads that wait are handed on in the same pass.
    clocks_read: bool,
    /// Ticks so far at which unchanged threads were not listed, and when the last was.
    unlisted: (u64, u64),
    /// When all of these were last handed on.
    mentioned: u64,
    /// Every thread is needed in full again.
    resend: bool,
    /// When locks were last looked at.
    last_look: u64,
    /// Ticks whose snapshots are still to be read.
    held: Vec<DueTick>,
    links: &'a SamplerLinks<'a>,
}

impl Run<'_> {
    fn begin(&mut self, due: &DueTick) {
        self.tick += 1;
        self.counts.n_ticks += 1;
        self.counts.n_late += u64::from(due.late);
        self.counts.n_missed += due.missed;
        self.batch.time = due.time;
        self.n_waiting += 1;
    }

    /// Timer samples at which they are to be read.
    fn max_held_samples(&self, now: u64) -> u32 {
        match now < self.deep_until {
            true => 1,
            false => MAX_HELD_SAMPLES,
        }
    }

    /// Several ticks make a batch, so that the receiver is woken less often. Samples of running
    /// threads are not held back: the rest of a deep stack is read while it is still there.
    fn is_due(&self) -> bool {
        self.n_waiting >= MAX_TICKS
            || self.batch.stacks.len() >= MAX_BYTES
            || self.clocks_read
            || !self.batch.process_cpu_ns.is_empty()
            || !self.batch.joined.is_empty()
            || self.deep_sample
    }

    fn send(&mut self) -> Result<(), SamplingEnd> {
        self.n_waiting = 0;
        self.deep_sample = false;
        self.clocks_read = false;
        self.batch.counts = std::mem::take(&mut self.counts);
        // The next one will be about as large.
        let room = (self.batch.stacks.len(), self.batch.threads.len());
        let batch = std::mem::take(&mut self.batch);
        self.batch.stacks.reserve(room.0);
        self.batch.threads.reserve(room.1);
        match self.links.batches.try_send(batch) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(batch)) => {
                self.take_back(batch);
                Ok(())
            }
            Err(TrySendError::Disconnected(_)) => Err(SamplingEnd::ReceiverGone),
        }
    }

    /// The receiver is behind. Counters are cumulative, so the next observation of a thread covers
    /// the time of the lost ones; its stack is copied again. Births and exits are kept.
    fn take_back(&mut self, mut batch: TickBatch) {
        self.resend = true;
        self.counts = batch.counts;
        self.counts.n_dropped_batches += 1;
        self.counts.n_lost += batch.timer_samples.len() as u64;
        for tick in &batch.threads {
            if let Some(slot) = self.slots.get_mut(&tick.tid) {
                slot.force = true;
            }
        }
        batch.threads.retain_mut(|tick| {
            if !matches!(tick.stack, StackCopy::Unchanged) {
                tick.stack = StackCopy::Torn;
            }
            tick.since.is_some() || tick.comm.is_some()
        });
        self.batch.threads = batch.threads;
        self.batch.joined = batch.joined;
        self.batch.exited = batch.exited;
        self.batch.own_tids = batch.own_tids;
        self.batch.process_cpu_ns = batch.process_cpu_ns;
        self.batch.ended = batch.ended;
    }
}
