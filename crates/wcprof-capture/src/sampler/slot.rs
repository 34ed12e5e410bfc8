//! What the sampler remembers of each thread between ticks.

use std::ops::Range;

use wcprof_types::{Avma, Sched};

use crate::engine::{StackWant, ThreadSnapshot};

use super::StackRequest;
use super::batch::{KernelStack, Since, StackCopy, TargetId, ThreadTick};

/// First guess of how much of a stack to copy; what unwinding needs is learned soon.
const FIRST_READ: usize = 4 << 10;
/// The least that is copied.
const MIN_READ: usize = 512;
/// The most that is ever copied of one stack.
const MAX_READ: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) target: TargetId,
    last: ThreadSnapshot,
    /// The last unchanged tick that was not handed on yet, and how many there were.
    deferred: Option<(u64, u32)>,
    /// When something was last handed on.
    sent: u64,
    /// Bytes of stack to copy.
    pub(super) read_size: usize,
    /// First address after what unwinding needs of its stack.
    stack_end: Option<Avma>,
    /// The mapping that its stack pointer last was in, and that pointer.
    mapping: Option<(Range<Avma>, Avma)>,
    /// Copy the stack again even if the thread did not run.
    pub(super) force: bool,
    /// Number of the tick that last saw it.
    pub(super) tick: u64,
    /// Its name passes the filters.
    pub(super) keep: bool,
    /// Ticks at which unchanged threads were not listed, as far as they are accounted here.
    n_unlisted: u64,
    /// What the engine was told to copy of its stack.
    want: Option<StackWant>,
    /// The lock that it waits for, if that is looked at.
    pub(super) lock: Option<u64>,
}

impl Slot {
    pub(super) fn new(first: &ThreadSnapshot, keep: bool, tick: u64, n_unlisted: u64) -> Self {
        Self {
            target: first.target,
            last: first.clone(),
            deferred: None,
            sent: first.time,
            read_size: FIRST_READ,
            stack_end: None,
            mapping: None,
            force: false,
            tick,
            keep,
            n_unlisted,
            want: None,
            lock: None,
        }
    }

    /// Whether `now` only repeats what is known: it was blocked, has not run since, and nobody has
    /// given it another name.
    pub(super) fn unchanged(&self, now: &ThreadSnapshot) -> bool {
        !self.force
            && !self.is_renamed(now)
            && self.last.sched == Sched::Blocked
            && now.sched == Sched::Blocked
            && now.switches == self.last.switches
            && now.n_runs == self.last.n_runs
    }

    /// How often it had been put on a CPU when it was last seen, if that was in a new wait, not
    /// before `since`.
    pub(super) fn blocked_runs(&self, since: u64) -> Option<u64> {
        let is_new = self.last.sched == Sched::Blocked && self.last.time >= since;
        is_new.then_some(self.last.n_runs)
    }

    /// Takes account of the ticks, `n` by now and the last at `time`, at which it was unchanged
    /// but not listed.
    pub(super) fn catch_up(&mut self, n: u64, time: u64) {
        let missing = n.saturating_sub(self.n_unlisted);
        self.n_unlisted = n;
        if missing > 0 {
            let known = self.deferred.map_or(0, |(_, n)| n);
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.deferred = Some((time, known.saturating_add(missing)));
        }
    }

    /// Leaves out the present tick, at which it is listed.
    pub(super) fn listed(&mut self, n_unlisted: u64) {
        self.n_unlisted = n_unlisted;
    }

    /// Whether its name is another one now.
    pub(super) fn is_renamed(&self, now: &ThreadSnapshot) -> bool {
        now.comm.is_some() && now.comm != self.last.comm
    }

    pub(super) fn defer(&mut self, time: u64) {
        let n = self.deferred.map_or(0, |(_, n)| n);
        self.deferred = Some((time, n.saturating_add(1)));
    }

    /// The unchanged ticks as one observation, if there were any.
    pub(super) fn take_deferred(&mut self) -> Option<ThreadTick> {
        let (time, n_ticks) = self.deferred.take()?;
        self.sent = time;
        Some(ThreadTick {
            time,
            n_ticks,
            stack: StackCopy::Unchanged,
            ..tick_of(&self.last)
        })
    }

    /// The same, when it has waited for longer than `max_ns`.
    pub(super) fn take_stale(&mut self, max_ns: u64) -> Option<ThreadTick> {
        let (time, _) = self.deferred?;
        if time.saturating_sub(self.sent) < max_ns {
            return None;
        }
        self.take_deferred()
    }

    /// Takes over `now` and gives it as an observation without its stack.
    pub(super) fn advance(&mut self, now: ThreadSnapshot, since: Option<Since>) -> ThreadTick {
        let comm = now
            .comm
            .filter(|_| since.is_some() || self.is_renamed(&now));
        let mut tick = tick_of(&now);
        tick.since = since;
        tick.comm = comm.map(|comm| comm.name());
        self.sent = now.time;
        let known = self.last.comm;
        self.last = now;
        self.last.comm = self.last.comm.or(known);
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
    pub(super) fn new_want(&mut self, mapping: Range<Avma>, sp: Avma) -> Option<&StackWant> {
        let want = StackWant {
            mapping: mapping.start..self.end_of(sp, mapping.end),
            bytes: self.read_size,
        };
        self.mapping = Some((mapping, sp));
        if self.want.as_ref() == Some(&want) {
            return None;
        }
        Some(self.want.insert(want))
    }

    /// The same after [`Self::resize`].
    pub(super) fn grown_want(&mut self) -> Option<(i32, StackWant)> {
        let (mapping, sp) = self.mapping.clone()?;
        let host_tid = self.last.host_tid?;
        Some((host_tid, self.new_want(mapping, sp)?.clone()))
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
        self.force |= grows;
        grows
    }
}

fn tick_of(snapshot: &ThreadSnapshot) -> ThreadTick {
    ThreadTick {
        target: snapshot.target,
        tid: snapshot.tid,
        time: snapshot.time,
        since: None,
        comm: None,
        sched: snapshot.sched,
        switches: snapshot.switches,
        voluntary: snapshot.voluntary,
        run_ns: snapshot.run_ns,
        delay_ns: snapshot.delay_ns,
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
    use crate::engine::{Comm, SnapshotStack};

    fn blocked(time: u64, name: Option<&str>) -> ThreadSnapshot {
        ThreadSnapshot {
            target: TargetId(0),
            tid: Tid(7),
            time,
            sched: Sched::Blocked,
            switches: 3,
            voluntary: None,
            run_ns: 1000,
            delay_ns: 0,
            n_runs: 3,
            regs: None,
            syscall: None,
            kernel_side: false,
            started: 0,
            comm: name.map(Comm::new),
            exec_id: 0,
            host_tid: None,
            stack: SnapshotStack::None,
            kernel: 0..0,
        }
    }

    /// Check that a new name of a thread which does not run is handed on, once.
    #[test]
    fn renamed_while_blocked() {
        let mut slot = Slot::new(&blocked(0, Some("before")), true, 1, 0);
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
        let mut slot = Slot::new(&snapshot(), true, 1, 0);
        let mapping = Avma(0x1000)..Avma(0x9000);
        let wanted = |slot: &mut Slot, sp| {
            let want = slot.new_want(mapping.clone(), Avma(sp))?;
            Some((want.mapping.end.0, want.bytes))
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
        assert!(slot.resize(&request(None, None)) && slot.force);
        assert_eq!(wanted(&mut slot, 0x5000), Some((0x9000, MIN_READ)));
        assert!(slot.resize(&request(Some(8000), None)));
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
        assert_eq!(Slot::new(&now, true, 1, 0).blocked_runs(20), Some(3));
        assert_eq!(Slot::new(&now, true, 1, 0).blocked_runs(21), None);
        now.sched = Sched::OnCpu;
        assert_eq!(Slot::new(&now, true, 1, 0).blocked_runs(20), None);
    }
}
