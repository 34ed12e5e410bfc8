//! What is known of each thread while it is recorded.

use wcprof_capture::{Since, ThreadTick};
use wcprof_trace::model::{StackId, ThreadId, WaitId};
use wcprof_weights::{Ledger, Observation, Piece, TimerHit};

/// A stack with what the thread waits in.
pub(crate) type Place = (Option<StackId>, Option<WaitId>);

pub(crate) struct ThreadState {
    pub(crate) id: ThreadId,
    pub(crate) ledger: Ledger<Place>,
    /// Timer samples since the last observation.
    pub(crate) hits: Vec<TimerHit<Place>>,
    /// Of the last observation that had one.
    pub(crate) place: Option<Place>,
    pub(crate) first_time: u64,
    pub(crate) n_ticks: u64,
    /// Most bytes of its stack that an unwinding needed, over `n_unwound` of them.
    pub(crate) needed: usize,
    pub(crate) n_unwound: u32,
}

impl ThreadState {
    /// A thread at its first observation. One that was born since the tick before is accounted
    /// from its birth, when its counters were zero.
    pub(crate) fn new(id: ThreadId, tick: &ThreadTick, begin: u64) -> Self {
        let first = match tick.since {
            Some(Since::Birth(born)) => Observation {
                time: born.clamp(begin, tick.time),
                // It may have waited since, but not before.
                sched: wcprof_weights::Sched::Running,
                switches: tick.switches.wrapping_sub(1),
                voluntary: tick.voluntary.map(|_| 0),
                run_ns: 0,
                delay_ns: 0,
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
            n_ticks: 0,
            needed: 0,
            n_unwound: 0,
        }
    }

    /// Accounts a tick; the pieces of the time since the last one go to `pieces`.
    pub(crate) fn observe(
        &mut self,
        tick: &ThreadTick,
        place: Option<Place>,
        pieces: &mut Vec<Piece<Place>>,
    ) {
        self.n_ticks += u64::from(tick.n_ticks);
        let mut now = observation(tick, place);
        now.n_ticks = tick.n_ticks;
        // A batch may hold later samples, which belong to its later ticks.
        self.hits.sort_unstable_by_key(|h| h.time);
        let n_due = self.hits.partition_point(|h| h.time <= tick.time);
        let due = &self.hits[..n_due];
        self.ledger
            .observe(now, due, &mut |piece| pieces.push(piece));
        self.hits.drain(..n_due);
        if place.is_some() {
            self.place = place;
        }
    }

    /// Samples after the last observation have no time to stand for.
    pub(crate) fn finish(&mut self, pieces: &mut Vec<Piece<Place>>) {
        self.ledger.finish(&mut |piece| pieces.push(piece));
    }
}

fn observation(tick: &ThreadTick, place: Option<Place>) -> Observation<Place> {
    Observation {
        time: tick.time,
        sched: tick.sched,
        switches: tick.switches,
        voluntary: tick.voluntary,
        run_ns: tick.run_ns,
        delay_ns: tick.delay_ns,
        place,
        n_ticks: tick.n_ticks,
    }
}
