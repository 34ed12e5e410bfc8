//! Spreads exact run time over timer samples.
//!
//! A sample stands for the run time since the one before it. Run time may be known later than the
//! sample (the counters settle late), so either side waits for the other.

use wcprof_types::ThreadState;

use super::observation::{Piece, TimerHit};

/// Timer samples that may wait for run time; more are merged into the last one.
const MAX_WAITING: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct CpuAccount<K> {
    /// All run time added so far, ns.
    total: u64,
    /// Run time without a sample yet, ns.
    pending: u64,
    /// Where the pending time began.
    since: u64,
    /// Samples without run time yet.
    waiting: Vec<TimerHit<K>>,
    last_hit: Option<TimerHit<K>>,
}

impl<K: Copy> CpuAccount<K> {
    pub(crate) fn new(time: u64) -> Self {
        Self {
            total: 0,
            pending: 0,
            since: time,
            waiting: Vec::new(),
            last_hit: None,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn last_place(&self) -> Option<K> {
        self.last_hit.map(|h| h.place)
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = K> + '_ {
        self.waiting
            .iter()
            .chain(&self.last_hit)
            .map(|hit| hit.place)
    }

    /// Counts run time that is no CPU time of the program.
    pub(crate) fn leave_out(&mut self, run: u64) {
        self.total += run;
    }

    /// Adds `run` ns of a guest's run time that lie in `start..end` as far as there is room: no sample tells more of it.
    pub(crate) fn add_guest(
        &mut self,
        run: u64,
        (start, end): (u64, u64),
        pieces: &mut Vec<Piece<K>>,
    ) {
        self.total += run;
        if run > 0 {
            pieces.push(Piece {
                start: start.min(end.saturating_sub(run)),
                end,
                weight: run,
                n_samples: 0,
                state: ThreadState::Guest,
                place: None,
            });
        }
    }

    /// Adds `run` ns of run time that lie in `start..end` as far as there is room, and the samples since the last call.
    pub(crate) fn add(
        &mut self,
        run: u64,
        hits: &[TimerHit<K>],
        (start, end): (u64, u64),
        pieces: &mut Vec<Piece<K>>,
    ) {
        if self.pending == 0 {
            self.since = start;
        }
        self.total += run;
        self.pending += run;
        self.since = self.since.min(end.saturating_sub(self.pending));
        for hit in hits {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(*hit);
            }
            self.last_hit = Some(*hit);
        }
        if self.pending == 0 || self.waiting.is_empty() {
            return;
        }
        let total = self.pending;
        let n = self.waiting.len() as u64;
        let mut given = 0;
        for (i, hit) in self.waiting.drain(..).enumerate() {
            // Cumulative rounding: the shares add up to `total` exactly.
            let upto = (u128::from(total) * (i as u128 + 1) / u128::from(n)) as u64;
            pieces.push(piece(hit, self.since, end, upto - given, 1));
            given = upto;
        }
        self.pending = 0;
    }

    /// Gives what is left to the last sample's place, or to no place.
    pub(crate) fn finish(&mut self, end: u64, pieces: &mut Vec<Piece<K>>) {
        if self.pending == 0 {
            return;
        }
        pieces.push(match self.last_hit {
            Some(hit) => piece(hit, self.since, end, self.pending, 0),
            None => Piece {
                start: self.since,
                end,
                weight: self.pending,
                n_samples: 0,
                state: ThreadState::OnCpu,
                place: None,
            },
        });
        self.pending = 0;
    }
}

fn piece<K>(hit: TimerHit<K>, start: u64, end: u64, weight: u64, n_samples: u32) -> Piece<K> {
    Piece {
        start,
        end,
        weight,
        n_samples,
        state: hit.state,
        place: Some(hit.place),
    }
}
