//! What the sampler remembers of each thread between ticks.

use std::ops::Range;

use wcprof_types::{Avma, Sched};

use super::links::StackRequest;
use crate::batch::{KernelStack, Since, StackCopy, TargetId, ThreadTick};
use crate::bpf::Want;
use crate::engine::{Snapshots, ThreadSnapshot};

/// First guess of how much of a stack to copy; what unwinding needs is learned soon.
const FIRST_READ: usize = 4 << 10;
/// The least that is copied.
const MIN_READ: usize = 512;
/// The most that is ever copied of one stack.
const MAX_READ: usize = 1 << 20;

/// A tick, counted from 1, and when its snapshot was taken, `CLOCK_MONOTONIC` ns.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct SeenTick {
    pub(super) number: u64,
    pub(super) time: u64,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) target: TargetId,
    last: ThreadSnapshot,
    /// The last unchanged tick that was not handed on yet, and how many there were.
    deferred: Option<(u64, u32)>,
    /// Bytes of stack to copy.
    pub(super) read_size: usize,
    /// First address after what unwinding needs of its stack.
    stack_end: Option<Avma>,
    /// The mapping that its stack pointer last was in, and that pointer.
    mapping: Option<(Range<Avma>, Avma)>,
    /// Copy the stack again even if the thread did not run.
    pub(super) force: bool,
    /// Number of the last tick that is accounted.
    pub(super) tick: u64,
    /// Its name passes the filters.
    pub(super) keep: bool,
    /// What the engine was told to copy of its stack.
    want: Option<Want>,
    /// The lock that it waits for, if that is looked at.
    pub(super) lock: Option<u64>,
}

impl Slot {
    pub(super) fn new(first: &ThreadSnapshot, keep: bool, tick: u64) -> Self {
        Self {
            target: first.target,
            last: first.clone(),
            deferred: None,
            read_size: FIRST_READ,
            stack_end: None,
            mapping: None,
            force: false,
            tick,
            keep,
            want: None,
            lock: None,
        }
    }

    /// Its number in the initial pid namespace, if that is known.
    pub(super) fn host_tid(&self) -> Option<i32> {
        self.last.info.host_tid
    }

    /// Whether it has no user stack.
    pub(super) fn is_worker(&self) -> bool {
        self.last.info.kernel_side
    }

    /// Whether `now` is of the same thread, not of a later one with its number.
    pub(super) fn is_of(&self, now: &ThreadSnapshot) -> bool {
        (self.target, self.last.info.started) == (now.target, now.info.started)
    }

    /// Whether `now` only repeats what is known: it was blocked, has not run since, and nobody has
    /// given it another name.
    pub(super) fn unchanged(&self, now: &ThreadSnapshot) -> bool {
        !self.force
            && !self.is_renamed(now)
            && self.last.sched == Sched::Blocked
            && now.sched == Sched::Blocked
            && now.stop == self.last.stop
            && now.counters.switches == self.last.counters.switches
            && now.n_runs == self.last.n_runs
    }

    /// How often it had been put on a CPU when it was last seen, if that was in a new wait, not
    /// before `since`.
    pub(super) fn blocked_runs(&self, since: u64) -> Option<u64> {
        let is_new = self.last.sched == Sched::Blocked && self.last.time >= since;
        is_new.then_some(self.last.n_runs)
    }

    /// Takes account of the ticks up to `seen` at which it was unchanged and not listed.
    pub(super) fn catch_up(&mut self, seen: SeenTick) {
        let missing = seen.number.saturating_sub(self.tick);
        if missing > 0 {
            self.defer(seen.time, u32::try_from(missing).unwrap_or(u32::MAX));
            self.tick = seen.number;
        }
    }

    /// Whether its name is another one now.
    pub(super) fn is_renamed(&self, now: &ThreadSnapshot) -> bool {
        now.info.comm.is_some() && now.info.comm != self.last.info.comm
    }

    /// Notes `n` unchanged ticks, the last at `time`.
    pub(super) fn defer(&mut self, time: u64, n: u32) {
        let known = self.deferred.map_or(0, |(_, n)| n);
        self.deferred = Some((time, known.saturating_add(n)));
    }

    /// The unchanged ticks as one observation, if there were any and it is recorded.
    pub(super) fn take_deferred(&mut self) -> Option<ThreadTick> {
        let (time, n_ticks) = self.deferred.take().filter(|_| self.keep)?;
        Some(ThreadTick {
            time,
            n_ticks,
            stack: StackCopy::Unchanged,
            ..tick_of(&self.last)
        })
    }

    /// Takes over `now` and gives it as an observation without its stack.
    pub(super) fn advance(&mut self, now: ThreadSnapshot, since: Option<Since>) -> ThreadTick {
        let comm = now.info.comm;
        let comm = comm.filter(|_| since.is_some() || self.is_renamed(&now));
        let tick = ThreadTick {
            since,
            comm: comm.map(|comm| comm.name()),
            ..tick_of(&now)
        };
        let known = self.last.info.comm;
        self.last = now;
        self.last.info.comm = self.last.info.comm.or(known);
        self.force = false;
        tick
    }

    /// First address after what is to be copied from `sp` upward, which lies in `mapping`.
    pub(super) fn end_of(&self, sp: Avma, mapping_end: Avma) -> Avma {
        // A thread can have many stacks (coroutines, signal handlers): the end is of one of them.
        let end = self.stack_end.filter(|&end| sp < end && end < mapping_end);
        end.unwrap_or(mapping_end)
    }

    /// What the engine is to copy of its stack from now on, if that is something else than before.
    pub(super) fn new_want(&mut self, mapping: Range<Avma>, sp: Avma) -> Option<&Want> {
        let want = Want {
            start: mapping.start.0,
            end: self.end_of(sp, mapping.end).0,
            host_tid: self.last.info.host_tid?,
            bytes: self.read_size as u32,
        };
        self.mapping = Some((mapping, sp));
        if self.want == Some(want) {
            return None;
        }
        Some(self.want.insert(want))
    }

    /// The same after [`Self::resize`].
    pub(super) fn grown_want(&mut self) -> Option<&Want> {
        let (mapping, sp) = self.mapping.clone()?;
        self.new_want(mapping, sp)
    }

    /// Another part of the stack is needed from now on; true when it is larger, so that copying
    /// the same stack again makes sense.
    pub(super) fn resize(&mut self, request: &StackRequest) -> bool {
        let size = request.bytes.map_or(self.read_size, |bytes| {
            bytes.next_multiple_of(256).clamp(MIN_READ, MAX_READ)
        });
        let grows = size > self.read_size || (self.stack_end.is_some() && request.end.is_none());
        self.read_size = size;
        self.stack_end = request.end;
        grows
    }

    /// Has its stack copied again even if it does not run.
    pub(super) fn read_again(&mut self, snapshots: &mut dyn Snapshots) {
        self.force = true;
        if let Some(host_tid) = self.last.info.host_tid {
            snapshots.want_thread(host_tid);
        }
    }
}

/// An observation of a thread without name and stack.
pub(super) fn tick_of(snapshot: &ThreadSnapshot) -> ThreadTick {
    ThreadTick {
        target: snapshot.target,
        tid: snapshot.tid,
        time: snapshot.time,
        since: None,
        comm: None,
        sched: snapshot.sched,
        stop: snapshot.stop,
        counters: snapshot.counters,
        n_ticks: 1,
        wait: None,
        stack: StackCopy::None,
        kernel: KernelStack::None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use wcprof_types::Tid;

    use super::*;
    use crate::batch::ThreadCounters;
    use crate::engine::{Comm, SnapshotStack, ThreadInfo};

    fn blocked(time: u64, name: Option<&str>) -> ThreadSnapshot {
        ThreadSnapshot {
            target: TargetId(0),
            tid: Tid(7),
            time,
            sched: Sched::Blocked,
            counters: ThreadCounters::default(),
            n_runs: 3,
            regs: None,
            syscall: None,
            stop: None,
            stack: SnapshotStack::None,
            kernel: 0..0,
            info: ThreadInfo {
                comm: name.map(Comm::new),
                host_tid: Some(7),
                ..ThreadInfo::default()
            },
        }
    }

    /// Check that a number which is used again, in the same process or in another one, is of another thread.
    #[test]
    fn used_again() {
        let mut slot = Slot::new(&blocked(0, None), true, 1);
        assert!(slot.is_of(&blocked(9, Some("renamed"))));
        let mut later = blocked(9, None);
        later.info.started = 5;
        assert!(!slot.is_of(&later));
        slot.advance(later.clone(), None);
        assert!(slot.is_of(&later));
        later.target = TargetId(1);
        assert!(!slot.is_of(&later));
    }

    /// Check that a new name of a thread which does not run is handed on, once.
    #[test]
    fn renamed_while_blocked() {
        let mut slot = Slot::new(&blocked(0, Some("before")), true, 1);
        assert!(slot.unchanged(&blocked(1, None)));
        assert!(slot.unchanged(&blocked(2, Some("before"))));
        let renamed = blocked(3, Some("after"));
        assert!(!slot.unchanged(&renamed));
        assert_eq!(slot.advance(renamed, None).comm.as_deref(), Some("after"));
        assert!(slot.unchanged(&blocked(4, Some("after"))));
        assert!(slot.unchanged(&blocked(5, None)));
    }

    /// Check that a stack is copied as far as unwinding needs it, that this holds for one stack of a thread
    /// alone, and that an end that is taken back makes a larger part needed.
    #[test]
    fn ends() {
        let mut slot = Slot::new(&snapshot(), true, 1);
        let mapping = Avma(0x1000)..Avma(0x9000);
        let wanted = |slot: &mut Slot, sp| {
            let want = slot.new_want(mapping.clone(), Avma(sp))?;
            Some((want.end, want.bytes as usize))
        };
        assert_eq!(wanted(&mut slot, 0x5000), Some((0x9000, FIRST_READ)));
        assert_eq!(wanted(&mut slot, 0x5008), None);
        let request = |bytes, end: Option<u64>| StackRequest {
            tid: Tid(7),
            bytes,
            end: end.map(Avma),
        };
        assert!(!slot.resize(&request(None, Some(0x6000))));
        assert_eq!(wanted(&mut slot, 0x5000), Some((0x6000, FIRST_READ)));
        assert_eq!(wanted(&mut slot, 0x6000), Some((0x9000, FIRST_READ)));
        assert_eq!(slot.end_of(Avma(0x100), Avma(0x200)), Avma(0x200));
        assert!(!slot.resize(&request(Some(1), Some(0x6000))));
        assert_eq!(wanted(&mut slot, 0x5000), Some((0x6000, MIN_READ)));
        assert!(slot.resize(&request(None, None)));
        assert_eq!(wanted(&mut slot, 0x5000), Some((0x9000, MIN_READ)));
        assert!(slot.resize(&request(Some(8000), None)));
    }

    /// Check that ticks at which a thread was not listed are one observation, each counted once.
    #[test]
    fn unlisted_ticks() {
        let mut slot = Slot::new(&blocked(5, None), true, 1);
        let seen = |number, time| SeenTick { number, time };
        slot.catch_up(seen(1, 5));
        assert_eq!(slot.take_deferred(), None);
        slot.catch_up(seen(3, 25));
        slot.catch_up(seen(3, 25));
        slot.tick = 4;
        slot.defer(35, 1);
        let tick = slot.take_deferred().unwrap();
        assert_eq!((tick.time, tick.n_ticks), (35, 3));
        assert_eq!(tick.stack, StackCopy::Unchanged);
        slot.catch_up(seen(5, 45));
        slot.keep = false;
        assert_eq!(slot.take_deferred(), None);
    }

    /// A thread that waits.
    pub(crate) fn snapshot() -> ThreadSnapshot {
        blocked(0, None)
    }

    /// Check that runs are known of a thread alone that was found in a new wait.
    #[test]
    fn runs_of_blocked() {
        let mut now = snapshot();
        now.time = 20;
        assert_eq!(Slot::new(&now, true, 1).blocked_runs(20), Some(3));
        assert_eq!(Slot::new(&now, true, 1).blocked_runs(21), None);
        now.sched = Sched::OnCpu;
        assert_eq!(Slot::new(&now, true, 1).blocked_runs(20), None);
    }
}
