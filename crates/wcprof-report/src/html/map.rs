//! Spans to the map of states: which thread was in which state when, in bins of time.
//!
//! Memory is bounded by [`MAX_CELLS`], whatever the number of samples and threads.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::iter;

use wcprof_profile::model::{Profile, State};
use wcprof_profile::{GroupKey, RowSpan, Trees};

/// Most rows that are single threads; the others of a group are one row.
const MAX_THREADS: usize = 1000;
/// Most rows times bins.
const MAX_CELLS: usize = 150_000;
/// Most and fewest bins.
const BINS: (usize, usize) = (600, 60);
/// Shortest bin, ns: about a tick.
const MIN_BIN_NS: u64 = 10_000_000;
/// States, and what the view leaves out.
const N_KINDS: usize = State::ALL.len() + 1;
const LEFT_OUT: usize = State::ALL.len();
/// Parts of a bin that times are given in.
const PARTS: u128 = 1000;

/// A row: a thread, or threads that have none of their own.
#[derive(Clone, Debug)]
pub(super) struct MapRow {
    /// Index into [`Trees::groups`]; beyond its end for threads of several groups.
    pub(super) group: usize,
    /// Index into [`Profile::threads`]; `None` for those that are merged.
    pub(super) thread: Option<usize>,
    /// Threads in it.
    pub(super) n_threads: usize,
}

/// Time by row, bin and state.
#[derive(Clone, Debug)]
pub(super) struct StateMap {
    pub(super) bin_ns: u64,
    pub(super) n_bins: usize,
    pub(super) rows: Vec<MapRow>,
    /// By thread of the profile.
    row_of: Vec<Option<usize>>,
    /// By row of the profile: the state, or that it is left out.
    kind_of: Vec<u8>,
    cells: Vec<[u64; N_KINDS]>,
}

/// For each state with time: its number, and a thousandth of a bin by bin; `-n` repeats the number
/// before it (0 at the begin) `n` times.
pub(super) type StateRuns = Vec<(usize, Vec<i64>)>;

impl StateMap {
    /// For the threads of `trees`, whose first `n_groups` groups have rows of their own; what the
    /// trees do not show is left out, save idle time.
    pub(super) fn new(profile: &Profile, trees: &Trees, n_groups: usize) -> Self {
        let mut busy = vec![0_u64; profile.threads.len()];
        let mut kind_of = vec![LEFT_OUT as u8; profile.rows.len()];
        for (row, kind) in profile.rows.iter().zip(&mut kind_of) {
            if row.state.is_idle() {
                *kind = row.state as u8;
            } else {
                busy[row.thread] = busy[row.thread].saturating_add(row.weight);
            }
        }
        for &(row, _) in trees.groups.iter().flat_map(|g| &g.rows) {
            kind_of[row] = profile.rows[row].state as u8;
        }
        let (rows, row_of) = rows(profile, trees, n_groups, &busy);
        let most = (MAX_CELLS / rows.len().max(1)).clamp(BINS.1, BINS.0) as u64;
        let duration = profile.time.duration_ns();
        let bin_ns = bin_ns(duration, most);
        let n_bins = duration.div_ceil(bin_ns) as usize;
        Self {
            bin_ns,
            n_bins,
            cells: vec![[0; N_KINDS]; rows.len() * n_bins],
            rows,
            row_of,
            kind_of,
        }
    }

    /// Adds a span, spread evenly over its interval.
    pub(super) fn add(&mut self, profile: &Profile, span: &RowSpan) {
        let Some(row) = self.row_of[profile.rows[span.row].thread] else {
            return;
        };
        if span.weight == 0 || self.n_bins == 0 {
            return;
        }
        let kind = usize::from(self.kind_of[span.row]);
        let start = row * self.n_bins;
        let bins = &mut self.cells[start..start + self.n_bins];
        // A moment belongs to the bin that it ends.
        let last = bins.len() - 1;
        let bin_of = |time: u64| ((time / self.bin_ns) as usize).min(last);
        let (from, to) = (bin_of(span.start), bin_of(span.end.saturating_sub(1)));
        let length = span.end.saturating_sub(span.start);
        let mut given = 0;
        for (at, bin) in (from..=to.max(from)).zip(&mut bins[from..]) {
            // What was given up to the end of this bin; the last one gets the rest.
            let until = (at as u64 + 1).saturating_mul(self.bin_ns);
            let until = until.clamp(span.start, span.end.max(span.start)) - span.start;
            let upto = match at >= to || length == 0 {
                true => span.weight,
                false => (u128::from(span.weight) * u128::from(until) / u128::from(length)) as u64,
            };
            bin[kind] = bin[kind].saturating_add(upto - given);
            given = upto;
        }
    }

    /// The times of a row, `merge` bins as one.
    pub(super) fn states(&self, row: usize, merge: usize) -> StateRuns {
        let start = row * self.n_bins;
        let mut bins = self.cells[start..start + self.n_bins].to_vec();
        let n_threads = self.rows[row].n_threads.max(1) as u64;
        level(&mut bins, self.bin_ns.saturating_mul(n_threads));
        // Shares of what the threads of the row can have had.
        let whole = u128::from(self.bin_ns) * merge as u128 * u128::from(n_threads);
        let states = (0..N_KINDS).map(|kind| {
            let parts = bins.chunks(merge).map(|bins| {
                let ns: u128 = bins.iter().map(|bin| u128::from(bin[kind])).sum();
                ((ns * PARTS + whole / 2) / whole.max(1)).min(PARTS) as i64
            });
            (kind, runs(parts))
        });
        states.filter(|(_, runs)| !runs.is_empty()).collect()
    }
}

/// Moves what is too much for a bin to the nearest ones that have room, all states alike. When a thread
/// ran within a long interval is not known (the kernel settles its counters late), so that intervals
/// that overlap may put more than a bin's length into it.
fn level(bins: &mut [[u64; N_KINDS]], capacity: u64) {
    let total = |bin: &[u64; N_KINDS]| bin.iter().copied().fold(0, u64::saturating_add);
    let n_bins = bins.len();
    for at in 0..n_bins {
        let mut left = total(&bins[at]).saturating_sub(capacity);
        for distance in 1..n_bins {
            if left == 0 {
                break;
            }
            let near = [at.checked_sub(distance), at.checked_add(distance)];
            for to in near.into_iter().flatten().filter(|to| *to < n_bins) {
                let room = capacity.saturating_sub(total(&bins[to]));
                left -= shift(bins, at, to, room.min(left));
            }
        }
    }
}

/// Moves so much time from one bin to another; gives what it moved.
fn shift(bins: &mut [[u64; N_KINDS]], from: usize, to: usize, ns: u64) -> u64 {
    let Ok([from, to]) = bins.get_disjoint_mut([from, to]) else {
        return 0;
    };
    let all = from.iter().map(|ns| u128::from(*ns)).sum::<u128>();
    let (mut seen, mut moved) = (0_u128, 0_u64);
    for (from, to) in from.iter_mut().zip(to) {
        seen += u128::from(*from);
        // Up to this state, so that the parts add up to the whole.
        let upto = (seen * u128::from(ns)).checked_div(all).unwrap_or(0) as u64;
        let part = (upto - moved).min(*from);
        *from -= part;
        *to = to.saturating_add(part);
        moved += part;
    }
    moved
}

/// Threads with the most time that is not idle in rows of their own, by group; then a row of the
/// others of each group.
fn rows(
    profile: &Profile,
    trees: &Trees,
    n_groups: usize,
    busy: &[u64],
) -> (Vec<MapRow>, Vec<Option<usize>>) {
    let by_load = |&t: &usize| (Reverse(busy[t]), t);
    let of_groups = trees.groups.iter().take(n_groups).flat_map(|g| &g.threads);
    let mut ranked: Vec<usize> = of_groups.copied().collect();
    ranked.sort_by_key(by_load);
    let mut is_single = vec![false; profile.threads.len()];
    for &thread in ranked.iter().take(MAX_THREADS) {
        is_single[thread] = true;
    }
    let mut rows: Vec<MapRow> = Vec::new();
    let mut row_of = vec![None; profile.threads.len()];
    // Groups that are single threads, and those without rows, have one such row together.
    let mut rest: HashMap<usize, usize> = HashMap::new();
    for (at, group) in trees.groups.iter().enumerate() {
        let mut threads = group.threads.clone();
        threads.sort_by_key(by_load);
        let whose = match group.key {
            GroupKey::Thread(_) => usize::MAX,
            _ if at >= n_groups => usize::MAX,
            _ => at,
        };
        for thread in threads {
            let next = rows.len();
            let (row, group) = match is_single[thread] {
                true => (next, at),
                false => (*rest.entry(whose).or_insert(next), whose),
            };
            if row == next {
                rows.push(MapRow {
                    group,
                    thread: is_single[thread].then_some(thread),
                    n_threads: 0,
                });
            }
            rows[row].n_threads += 1;
            row_of[thread] = Some(row);
        }
    }
    (rows, row_of)
}

/// The shortest of 1, 2 and 5 times a power of ten for at most so many bins, ns.
fn bin_ns(duration: u64, most: u64) -> u64 {
    let units = iter::successors(Some(MIN_BIN_NS), |unit| Some(unit.saturating_mul(10)));
    let mut bins = units.flat_map(|unit| [1, 2, 5].map(|times| unit.saturating_mul(times)));
    let fitting = bins.find(|bin| duration.div_ceil(*bin) <= most.max(1));
    fitting.unwrap_or(u64::MAX)
}

/// See [`StateRuns`]; empty when all are 0.
fn runs(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut out = Vec::new();
    let (mut value, mut n) = (0, 0);
    for next in values {
        if next == value {
            n += 1;
            continue;
        }
        if n > 0 {
            out.push(-n);
        }
        out.push(next);
        (value, n) = (next, 0);
    }
    // Zeros at the end say nothing.
    if n > 0 && value != 0 {
        out.push(-n);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check lengths of bins at their borders.
    #[test]
    fn bins() {
        const S: u64 = 1_000_000_000;
        assert_eq!(bin_ns(10 * S, 600), S / 50);
        assert_eq!(bin_ns(60 * S, 600), S / 10);
        assert_eq!(bin_ns(60 * S + 1, 600), S / 5);
        assert_eq!(bin_ns(0, 600), MIN_BIN_NS);
        assert!(bin_ns(u64::MAX, 1) >= u64::MAX / 2);
    }

    /// Check that no bin holds more than it can while there is room, that nothing is lost, and that
    /// states move in proportion.
    #[test]
    fn levels() {
        let bin = |on_cpu, idle| {
            let mut bin = [0; N_KINDS];
            (bin[0], bin[State::Idle as usize]) = (on_cpu, idle);
            bin
        };
        let mut bins = vec![bin(50, 0), bin(100, 100), bin(100, 0), bin(20, 0)];
        level(&mut bins, 100);
        assert_eq!(bins, [bin(75, 25), bin(50, 50), bin(100, 0), bin(45, 25)]);
        // Nowhere to go.
        let mut bins = vec![bin(200, 0)];
        level(&mut bins, 100);
        assert_eq!(bins, [bin(200, 0)]);
    }

    /// Check that runs say what repeats.
    #[test]
    fn repeats() {
        assert_eq!(
            runs([0, 0, 5, 5, 5, 7, 0, 0].into_iter()),
            [-2, 5, -2, 7, 0]
        );
        assert_eq!(runs([1000, 1000].into_iter()), [1000, -1]);
        assert!(runs([0, 0].into_iter()).is_empty());
    }
}
