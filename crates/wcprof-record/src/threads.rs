//! What is known of each thread while it is recorded.

use wcprof_capture::{Since, StackCopy, ThreadTick};
use wcprof_trace::model::{StackId, ThreadId, WaitId};
use wcprof_types::{Sched, StopCause};

use crate::need::Need;
use crate::weights::{Ledger, Observation, Piece, TimerHit};

/// A stack with what the thread waits in.
pub(crate) type Place = (Option<StackId>, Option<WaitId>);

/// A thread of the trace that waits for the next one of its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resting {
    pub(crate) id: ThreadId,
    /// Its first observation.
    pub(crate) first_time: u64,
    pub(crate) n_ticks: u64,
}

pub(crate) struct ThreadState {
    pub(crate) id: ThreadId,
    pub(crate) ledger: Ledger<Place>,
    /// Timer samples since the last observation.
    pub(crate) hits: Vec<TimerHit<Place>>,
    /// Of the last observation that had one.
    pub(crate) place: Option<Place>,
    /// The last observation had one, or repeated it.
    pub(crate) place_holds: bool,
    /// What the scheduler did with it at the last observation.
    pub(crate) sched: Sched,
    /// The last timer sample until then: when, and its place.
    last_hit: Option<(u64, Place)>,
    pub(crate) first_time: u64,
    pub(crate) n_ticks: u64,
    /// How much of its stack is to be copied.
    pub(crate) need: Need,
}

impl ThreadState {
    /// A thread at its first observation. One that was born since the tick before is accounted
    /// from its birth, when its counters were zero.
    pub(crate) fn new(id: ThreadId, tick: &ThreadTick, begin: u64) -> Self {
        let first = match tick.since {
            Some(Since::Birth(born)) => Observation {
                time: born.clamp(begin, tick.time),
                // It may have waited since, but not before.
                sched: Sched::Running,
                stopped: false,
                dumps: false,
                switches: tick.counters.switches.wrapping_sub(1),
                voluntary: tick.counters.voluntary.map(|_| 0),
                run_ns: 0,
                delay_ns: 0,
                guest_ns: 0,
                place: None,
                n_ticks: 0,
            },
            _ => observation(tick, None),
        };
        Self {
            id,
            first_time: first.time,
            ledger: Ledger::new(first),
            hits: Vec::new(),
            place: None,
            place_holds: false,
            sched: tick.sched,
            last_hit: None,
            n_ticks: 0,
            need: Need::default(),
        }
    }

    /// The same thread of the trace as one that has ended.
    pub(crate) fn resume(resting: Resting, tick: &ThreadTick, begin: u64) -> Self {
        Self {
            first_time: resting.first_time,
            n_ticks: resting.n_ticks,
            ..Self::new(resting.id, tick, begin)
        }
    }

    /// What is known of it for the next thread that is the same one in the trace.
    pub(crate) fn resting(&self) -> Resting {
        Resting {
            id: self.id,
            first_time: self.first_time,
            n_ticks: self.n_ticks,
        }
    }

    /// Accounts a tick; the pieces of the time since the last one go to `pieces`. Gives the run time of
    /// that, ns.
    pub(crate) fn observe(
        &mut self,
        tick: &ThreadTick,
        place: Option<Place>,
        pieces: &mut Vec<Piece<Place>>,
    ) -> u64 {
        let before = self.ledger.run_ns();
        self.n_ticks += u64::from(tick.n_ticks);
        let mut now = observation(tick, place);
        now.n_ticks = tick.n_ticks;
        // A batch may hold later samples, which belong to its later ticks.
        self.hits.sort_unstable_by_key(|h| h.time);
        let n_due = self.hits.partition_point(|h| h.time <= tick.time);
        let due = &self.hits[..n_due];
        self.ledger.observe(now, due, pieces);
        if let Some(hit) = due.last() {
            self.last_hit = Some((hit.time, hit.place));
        }
        self.hits.drain(..n_due);
        self.sched = tick.sched;
        self.place_holds = match tick.stack {
            StackCopy::Unchanged => self.place_holds,
            _ => place.is_some(),
        };
        if place.is_some() {
            self.place = place;
        }
        self.ledger.run_ns() - before
    }

    /// Where it was at a tick that its last observation is of: blocked or queued the place seen
    /// then, running that of the timer sample that is nearest, at most `near` ns away.
    pub(crate) fn place_at(&self, time: u64, near: u64) -> Option<Place> {
        if !matches!(self.sched, Sched::OnCpu | Sched::Running) {
            return self.place.filter(|_| self.place_holds);
        }
        let next = self.hits.iter().map(|hit| (hit.time, hit.place));
        self.last_hit
            .into_iter()
            .chain(next)
            .map(|(at, place)| (at.abs_diff(time), place))
            .min_by_key(|(distance, _)| *distance)
            .filter(|(distance, _)| *distance <= near)
            .map(|(_, place)| place)
    }

    /// Where it writes a core dump, if that was seen before; else `own`.
    pub(crate) fn dumps_at(&self, own: Place) -> Place {
        self.ledger.dump_place().unwrap_or(own)
    }

    /// Every place that it remembers.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let hits = self.hits.iter().map(|hit| hit.place);
        let last_hit = self.last_hit.map(|(_, place)| place);
        let others = [self.place, last_hit].into_iter().flatten();
        self.ledger.places().chain(hits).chain(others)
    }

    /// What it would give out were this the end.
    pub(crate) fn rest(&self) -> Vec<Piece<Place>> {
        let mut pieces = Vec::new();
        self.ledger.clone().finish(&mut pieces);
        pieces
    }

    /// Gives out the rest, and how much of it is run time, ns. Samples after the last observation have
    /// no time to stand for.
    pub(crate) fn finish(&mut self, pieces: &mut Vec<Piece<Place>>) -> u64 {
        let before = self.ledger.run_ns();
        self.ledger.finish(pieces);
        self.ledger.run_ns() - before
    }
}

fn observation(tick: &ThreadTick, place: Option<Place>) -> Observation<Place> {
    Observation {
        time: tick.time,
        sched: tick.sched,
        stopped: tick.stop.is_some(),
        dumps: tick.stop == Some(StopCause::CoreDump),
        switches: tick.counters.switches,
        voluntary: tick.counters.voluntary,
        run_ns: tick.counters.run_ns,
        delay_ns: tick.counters.delay_ns,
        guest_ns: tick.counters.guest_ns,
        place,
        n_ticks: tick.n_ticks,
    }
}
