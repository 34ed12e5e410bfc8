//! Counts of a whole recording to those since a moment of it.

use wcprof_types::TimeNs;

use super::snapshot::Snapshot;
use crate::model::Stats;

/// The counts since `from`. Between two chunks they are taken to grow evenly.
pub(super) fn stats_since(snapshot: &Snapshot, from: TimeNs) -> Stats {
    let now = &snapshot.stats;
    let befores = snapshot.chunks.iter().map(|chunk| &chunk.facts.before);
    let befores: Vec<&Stats> = befores.collect();
    let n_past = befores.iter().take_while(|b| b.duration <= from).count();
    let zero = Stats::default();
    let last = n_past.checked_sub(1).map_or(&zero, |at| befores[at]);
    let next = befores.get(n_past).copied().unwrap_or(now);
    let step = next.duration.0.saturating_sub(last.duration.0);
    let into = from.0.saturating_sub(last.duration.0).min(step);
    let since = |last: u64, next: u64, now: u64| {
        let grown = next.saturating_sub(last);
        now.saturating_sub(last.saturating_add(scale(grown, into, step)))
    };
    let ends = now.ends.iter().map(|(&end, &n)| {
        let at = |stats: &Stats| stats.ends.get(&end).copied().unwrap_or(0);
        (end, since(at(last), at(next), n))
    });
    let changes = now.rate_changes.iter().filter(|(time, _)| *time > from);
    let mut stats = Stats {
        duration: TimeNs(now.duration.0.saturating_sub(from.0)),
        ends: ends.filter(|(_, n)| *n > 0).collect(),
        rate_changes: changes
            .map(|(time, rate)| (TimeNs(time.0 - from.0), *rate))
            .collect(),
        ..now.clone()
    };
    let counts = last.counts().into_iter().zip(next.counts());
    for (count, (last, next)) in stats.counts_mut().into_iter().zip(counts) {
        *count = since(last, next, *count);
    }
    stats
}

/// The share of `n` that `part` is of `whole`.
pub(super) fn scale(n: u64, part: u64, whole: u64) -> u64 {
    (u128::from(n) * u128::from(part) / u128::from(whole.max(1))) as u64
}
