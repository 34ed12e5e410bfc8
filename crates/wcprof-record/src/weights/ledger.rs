//! One thread's account: every nanosecond between two observations goes somewhere once.

use wcprof_types::{Sched, ThreadState};

use super::cpu::CpuAccount;
use super::observation::{Observation, Piece, TimerHit};

/// How long run time may stay unsettled for a thread that keeps running: one scheduler tick
/// (10 ms at `CONFIG_HZ=100`, 4 ms at 250; `kernel/sched/core.c`, `sched_tick`) and some slack.
const SETTLE_NS: u64 = 12_000_000;
/// Guests' time that may be counted before the run time that it is a part of.
const MAX_GUEST_DUE_NS: u64 = 2 * SETTLE_NS;

/// A thread that runs or is queued (the engine cannot tell which) and shows neither a switch nor run
/// time was displaced, or the hypervisor took its CPU away. The next switch or run time tells which. The
/// ledger waits for it this long.
const HOLD_NS: u64 = 1_000_000_000;

/// One thread's account.
#[derive(Clone, Debug)]
pub(crate) struct Ledger<K> {
    last: Observation<K>,
    cpu: CpuAccount<K>,
    /// Wall-clock time that nothing explained yet.
    pending: u64,
    /// Where the pending time began.
    pending_since: u64,
    /// Run time counted by the kernel that found no wall-clock time to take.
    run_due: u64,
    /// Of a guest's.
    guest_due: u64,
    /// Run-queue delay, likewise.
    delay_due: u64,
    /// Runnable time given out before the kernel counted it.
    advance: u64,
    blocked: Blocked<K>,
    /// It was woken and has not run since.
    surely_queued: bool,
    /// It ran for most of the last interval.
    ran_lately: bool,
    /// For how long it has shown neither a switch nor run time while running or queued.
    still: u64,
}

/// What is known of a thread's waits.
#[derive(Clone, Debug)]
struct Blocked<K> {
    /// The last place it was seen blocked in.
    last_place: Option<K>,
    /// It was seen blocked.
    ever: bool,
    /// Where it is stopped, if it is. A thread that runs again was not stopped unseen.
    stop_place: Option<K>,
    /// How much of the pending time it may have been blocked for.
    maybe_ns: u64,
}

/// Pieces of time that are given out, and the end of the interval that they lie in.
struct Out<'a, K> {
    end: u64,
    pieces: &'a mut Vec<Piece<K>>,
}

impl<K: Copy> Ledger<K> {
    /// Opens the account at the first observation; time before it is not the thread's.
    pub(crate) fn new(first: Observation<K>) -> Self {
        let blocked = first.sched == Sched::Blocked && !first.stopped;
        Self {
            last: first,
            cpu: CpuAccount::new(first.time),
            pending: 0,
            pending_since: first.time,
            run_due: 0,
            guest_due: 0,
            delay_due: 0,
            advance: 0,
            blocked: Blocked {
                last_place: first.place.filter(|_| blocked),
                ever: blocked,
                stop_place: first.place.filter(|_| first.stopped),
                maybe_ns: 0,
            },
            surely_queued: false,
            ran_lately: false,
            still: 0,
        }
    }

    /// Time of the last observation, ns.
    pub(crate) fn last_time(&self) -> u64 {
        self.last.time
    }

    /// Run time accounted so far, ns; some of it may still wait for a timer sample.
    pub(crate) fn run_ns(&self) -> u64 {
        self.cpu.total()
    }

    /// Where it was when it was last seen while its process dumped core.
    pub(crate) fn dump_place(&self) -> Option<K> {
        self.last.place.filter(|_| self.last.dumps)
    }

    /// Every place that it remembers, some of them twice.
    pub(crate) fn places(&self) -> impl Iterator<Item = K> + '_ {
        let own = [
            self.last.place,
            self.blocked.last_place,
            self.blocked.stop_place,
        ];
        own.into_iter().flatten().chain(self.cpu.places())
    }

    /// Accounts the interval since the last observation. `hits` are the timer samples of the
    /// thread since then, oldest first. Appends pieces, in no particular order.
    pub(crate) fn observe(
        &mut self,
        now: Observation<K>,
        hits: &[TimerHit<K>],
        pieces: &mut Vec<Piece<K>>,
    ) {
        let out = &mut Out {
            end: now.time,
            pieces,
        };
        let wall = now.time.saturating_sub(self.last.time);
        let interval = Interval {
            prev: self.last,
            now,
            same: now.switches == self.last.switches,
            carried: self.pending,
            run: now.run_ns.saturating_sub(self.last.run_ns),
        };
        if self.pending == 0 {
            self.pending_since = self.last.time;
        }
        self.pending += wall;
        let slept = match (self.last.voluntary, now.voluntary) {
            (Some(a), Some(b)) => a != b,
            _ => !interval.same,
        };
        if slept || interval.prev.sched == Sched::Blocked || now.sched == Sched::Blocked {
            self.blocked.maybe_ns = self.pending;
        }
        self.ran_lately = interval.run > wall / 2;
        self.still = match interval.is_still() {
            true => self.still + wall,
            false => 0,
        };
        if interval.dumps() {
            // The thread that writes the dump runs in the kernel: its process is stopped all the same.
            self.cpu.leave_out(interval.run);
        } else {
            self.settle_counters(&interval, hits, out);
        }
        match now.sched {
            Sched::Blocked => self.seen_blocked(&interval, out),
            Sched::OnCpu => self.seen_on_cpu(out),
            Sched::Queued { waited_ns } => self.seen_queued(&interval, waited_ns, out),
            Sched::Running => self.seen_running(&interval, out),
        }
        if now.stopped {
            self.blocked.stop_place = now.place.or(self.blocked.stop_place);
        } else {
            self.blocked.stop_place = None;
            if now.sched == Sched::Blocked {
                self.blocked.ever = true;
                self.blocked.last_place = now.place.or(self.blocked.last_place);
            }
        }
        self.blocked.maybe_ns = self.blocked.maybe_ns.min(self.pending);
        if self.pending <= wall {
            // What is left is younger than the interval: later pieces need not reach further back.
            self.pending_since = self.pending_since.max(interval.prev.time);
        }
        self.last = now;
    }

    /// Closes the account at the last observation's time.
    pub(crate) fn finish(&mut self, pieces: &mut Vec<Piece<K>>) {
        let out = &mut Out {
            end: self.last.time,
            pieces,
        };
        match self.last.sched {
            Sched::OnCpu => self.finish_running(out),
            Sched::Running if self.ran_lately => self.finish_running(out),
            Sched::Running | Sched::Queued { .. } => {
                let all = self.pending;
                self.give_runnable(all, out);
            }
            Sched::Blocked => {}
        }
        self.cpu.finish(out.end, out.pieces);
        let rest = self.pending;
        self.give_unexplained(rest, out);
    }

    /// What is left is run time that the kernel has not counted yet, up to a scheduler tick of it.
    fn finish_running(&mut self, out: &mut Out<'_, K>) {
        let run = self.pending.min(SETTLE_NS);
        self.pending -= run;
        self.cpu
            .add(run, &[], (self.pending_since, out.end), out.pieces);
    }

    /// Takes what the kernel's two counters explain out of the pending time.
    fn settle_counters(
        &mut self,
        interval: &Interval<K>,
        hits: &[TimerHit<K>],
        out: &mut Out<'_, K>,
    ) {
        let mut delay = interval.now.delay_ns.saturating_sub(interval.prev.delay_ns);
        if interval.prev.sched == Sched::Blocked {
            // It can have waited for a CPU only since. Linux 6.12 adds the whole sleep if it moved the thread to
            // another CPU while that fell asleep: `last_queued` stays set until it runs again.
            delay = delay.min(interval.wall());
        }
        let paid = self.advance.min(delay);
        self.advance -= paid;
        self.delay_due += delay - paid;
        self.run_due += interval.run;
        let run = self.run_due.min(self.pending);
        self.run_due -= run;
        self.pending -= run;
        // What was counted in this interval was not run long before it.
        let recent = interval.prev.time.saturating_sub(SETTLE_NS);
        let since = self.pending_since.max(recent);
        // The kernel counts it in whole scheduler ticks, stolen ones too.
        let guest = interval.now.guest_ns.saturating_sub(interval.prev.guest_ns);
        self.guest_due = (self.guest_due + guest).min(run + MAX_GUEST_DUE_NS);
        let guest = self.guest_due.min(run);
        self.guest_due -= guest;
        (self.cpu).add_guest(guest, (since, out.end), out.pieces);
        (self.cpu).add(run - guest, hits, (since, out.end), out.pieces);
        let queued = self.delay_due.min(self.pending);
        self.delay_due -= queued;
        self.give_runnable_at(queued, interval.runnable_place(self), out);
    }

    /// Off-CPU in a wait: both counters are settled, the rest was spent blocked.
    fn seen_blocked(&mut self, interval: &Interval<K>, out: &mut Out<'_, K>) {
        let (prev, now) = (&interval.prev, &interval.now);
        let rest = self.pending;
        self.advance = 0;
        self.surely_queued = false;
        let was_blocked = prev.sched == Sched::Blocked;
        // The freezer of version 1 stops a sleeper without waking it.
        let is_same = interval.same || interval.dumps();
        let same_wait = was_blocked && is_same && prev.stopped == now.stopped;
        let known = prev.place.filter(|_| same_wait);
        // A repeated copy of the same stack may be longer than the first.
        let place = now.place.or(known);
        if place.is_none() {
            // Its stack could not be read: the time waits for an observation that has one.
            return;
        }
        if same_wait {
            self.give_blocked(rest, place, now.n_ticks, out);
        } else {
            // What was carried into the interval belongs to the wait before; of the interval
            // itself each end seen blocked gets half, since a sleep that straddles a tick lies
            // on both sides of it.
            let old = interval.carried.min(rest);
            let fresh = rest - old;
            let before = if was_blocked { fresh / 2 } else { 0 };
            if let Some(place) = prev
                .place
                .filter(|_| was_blocked)
                .or(self.blocked.last_place)
                .filter(|_| old + before > 0)
            {
                self.give_blocked(old + before, Some(place), 0, out);
            }
            let left = self.pending;
            self.give_blocked(left, now.place, 1, out);
        }
        self.pending = 0;
    }

    fn seen_on_cpu(&mut self, out: &mut Out<'_, K>) {
        self.surely_queued = false;
        self.advance = 0;
        let excess = self.pending.saturating_sub(SETTLE_NS);
        self.give_unexplained(excess, out);
    }

    /// On a run queue: the run time is settled, the current wait for a CPU is not counted yet.
    fn seen_queued(
        &mut self,
        interval: &Interval<K>,
        waited_ns: Option<u64>,
        out: &mut Out<'_, K>,
    ) {
        let now = &interval.now;
        let was_queued = matches!(interval.prev.sched, Sched::Queued { .. });
        if !(was_queued && interval.same) {
            self.advance = 0;
        }
        let waited = match waited_ns {
            Some(ns) => ns.saturating_sub(self.advance).min(self.pending),
            // For how long it had been queued before, the counter will tell.
            None if was_queued && interval.same => interval.wall().min(self.pending),
            None => return,
        };
        self.advance += waited;
        self.give_runnable_at(waited, now.place, out);
        let is_old = interval.prev.sched == Sched::Blocked || self.pending > SETTLE_NS;
        if waited_ns.is_some() && is_old {
            let rest = self.pending;
            self.give_unexplained(rest, out);
        }
    }

    /// Executing or queued. A thread that was woken and has an unchanged count has not run yet.
    fn seen_running(&mut self, interval: &Interval<K>, out: &mut Out<'_, K>) {
        let wall = interval.wall();
        if !interval.same {
            self.surely_queued = false;
            self.advance = 0;
            // A switch settles the counters. Since then it may have been displaced again.
            let excess = self.pending.saturating_sub(wall.max(SETTLE_NS));
            self.give_unexplained(excess, out);
        } else if interval.prev.sched == Sched::Blocked {
            // Woken at an unknown moment of the interval: half of it on average.
            let half = self.pending / 2;
            self.give_blocked(half, interval.prev.place, 0, out);
            self.surely_queued = true;
        } else if interval.run > 0 {
            // It was on its CPU at the last observation: what is older and unexplained was not waited.
            self.surely_queued = false;
            let excess = interval.carried.saturating_sub(SETTLE_NS);
            self.give_unexplained(excess.min(self.pending), out);
        } else if self.surely_queued || self.still > HOLD_NS {
            // When in the interval before it was woken, the counter will tell.
            let queued = match self.surely_queued {
                true => wall.min(self.pending),
                false => self.still.min(self.pending),
            };
            self.surely_queued = true;
            self.advance += queued;
            self.give_runnable(queued, out);
        }
    }

    /// Pending time that no counter explains: blocked as far as that is possible, else steal or
    /// interrupts. A thread never seen blocked has no place to be blocked in.
    fn give_unexplained(&mut self, ns: u64, out: &mut Out<'_, K>) {
        let place = self.blocked.stop_place.or(self.blocked.last_place);
        let blocked = match self.blocked.ever || self.blocked.stop_place.is_some() {
            true => ns.min(self.blocked.maybe_ns),
            false => 0,
        };
        self.blocked.maybe_ns -= blocked;
        self.give_blocked(blocked, place, 0, out);
        self.give(ns - blocked, ThreadState::StealIrq, None, 0, out);
    }

    fn give_blocked(&mut self, ns: u64, place: Option<K>, n_samples: u32, out: &mut Out<'_, K>) {
        self.give(ns, ThreadState::Blocked, place, n_samples, out);
    }

    fn give_runnable(&mut self, ns: u64, out: &mut Out<'_, K>) {
        let place = self.blocked.last_place.or(self.cpu.last_place());
        self.give_runnable_at(ns, place, out);
    }

    fn give_runnable_at(&mut self, ns: u64, place: Option<K>, out: &mut Out<'_, K>) {
        self.give(ns, ThreadState::Runnable, place, 1, out);
    }

    /// Takes time out of the pending and gives it out; nothing for 0 ns.
    fn give(
        &mut self,
        ns: u64,
        state: ThreadState,
        place: Option<K>,
        n_samples: u32,
        out: &mut Out<'_, K>,
    ) {
        if ns == 0 {
            return;
        }
        self.pending -= ns;
        out.pieces.push(Piece {
            start: self.pending_since,
            end: out.end,
            weight: ns,
            n_samples,
            state,
            place,
        });
    }
}

struct Interval<K> {
    prev: Observation<K>,
    now: Observation<K>,
    /// The switch counts at both ends are equal.
    same: bool,
    /// Pending time from before the interval.
    carried: u64,
    /// Run time counted in it.
    run: u64,
}

impl<K: Copy> Interval<K> {
    fn wall(&self) -> u64 {
        self.now.time.saturating_sub(self.prev.time)
    }

    /// Whether the kernel wrote the process's core dump all the time.
    fn dumps(&self) -> bool {
        self.prev.dumps && self.now.dumps
    }

    /// Whether it shows neither a switch nor run time, and no wait.
    fn is_still(&self) -> bool {
        let scheds = (self.prev.sched, self.now.sched);
        self.same && self.run == 0 && matches!(scheds, (Sched::Running, Sched::Running))
    }

    /// The stack for run-queue delay: where it was preempted or woken.
    fn runnable_place(&self, ledger: &Ledger<K>) -> Option<K> {
        match self.now.sched {
            Sched::Queued { .. } => self.now.place,
            _ => None,
        }
        .or(self.prev.place)
        .or(ledger.blocked.last_place)
        .or(ledger.cpu.last_place())
    }
}
