//! Models, ticks and timers to what the ledger makes of them.

use wcprof_types::ThreadState;

use super::model::{Model, View, Weights};
use crate::weights::{Ledger, Piece};

/// The period of the engines' timer.
pub(super) fn timer_period_ns(rate: u64) -> u64 {
    1_000_000_000 / rate * 618 / 641
}

/// Gives the model to a ledger at the ticks, which begin with its first observation.
pub(super) fn play(
    model: &Model,
    view: View,
    ticks: &[u64],
    (period, phase): (u64, u64),
) -> Vec<Piece<u32>> {
    let mut ledger = Ledger::new(model.at(ticks[0], view));
    let mut pieces = Vec::new();
    let hits = model.hits(period, phase, view == View::Blurred);
    let mut n_before = hits.partition_point(|hit| hit.time <= ticks[0]);
    for &tick in &ticks[1..] {
        let n = n_before + hits[n_before..].partition_point(|hit| hit.time <= tick);
        let due = &hits[n_before..n];
        n_before = n;
        ledger.observe(model.at(tick, view), due, &mut pieces);
    }
    ledger.finish(&mut pieces);
    pieces
}

pub(super) fn weights(pieces: &[Piece<u32>]) -> Weights {
    let mut by = Weights::new();
    for p in pieces {
        *by.entry((p.state, p.place)).or_default() += p.weight;
    }
    by
}

pub(super) fn sum(by: &Weights, state: ThreadState) -> u64 {
    let of_state = by.iter().filter(|((s, _), _)| *s == state);
    of_state.map(|(_, weight)| weight).sum()
}
