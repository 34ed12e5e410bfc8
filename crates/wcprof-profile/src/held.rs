//! What the memory of locks showed, by sum of spans: as much of it as memory permits.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::model::Span;

use crate::locks::{LockTimes, Share};

/// Most shares of all sums together, beyond two of each.
const MAX_KEPT: usize = 1 << 19;

/// Shares of lost time, by sum. What is left out does not depend on the order of the spans, nor, after
/// [`Held::settle`], on how they are spread.
#[derive(Debug)]
pub(crate) struct Held {
    of_sum: HashMap<usize, BTreeMap<Share, u64>>,
    n_shares: usize,
    /// Finds from this one on are left out, as if nobody had looked.
    n_found: u32,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            of_sum: HashMap::new(),
            n_shares: 0,
            n_found: u32::MAX,
        }
    }
}

impl Held {
    /// What a sum's lock showed; without looks, that nobody looked.
    pub(crate) fn of_sum(&self, sum: usize, weight: u64) -> Vec<(Share, u64)> {
        match self.of_sum.get(&sum) {
            Some(held) if !held.is_empty() => held.iter().map(|(s, w)| (*s, *w)).collect(),
            _ => vec![(Share::default(), weight)],
        }
    }

    /// Shares the time of a sum's span out.
    pub(crate) fn add(&mut self, sum: usize, span: &Span, locks: &LockTimes) {
        let held = self.of_sum.entry(sum).or_default();
        let n_before = n_more(held);
        locks.shares(span, self.n_found, held);
        self.n_shares += n_more(held) - n_before;
        while self.n_shares > MAX_KEPT && self.n_found > 0 {
            self.leave_out(self.n_found / 2);
        }
    }

    /// Leaves out the same finds in all parts, so many that what is kept of all is within the limit.
    pub(crate) fn settle<'h>(parts: impl Iterator<Item = &'h mut Self>) {
        let mut parts: Vec<_> = parts.collect();
        let mut n_found = parts.iter().map(|held| held.n_found).min().unwrap_or(0);
        loop {
            let more = parts.iter_mut().filter(|held| held.n_found > n_found);
            more.for_each(|held| held.leave_out(n_found));
            let n_shares: usize = parts.iter().map(|held| held.n_shares).sum();
            if n_shares <= MAX_KEPT || n_found == 0 {
                return;
            }
            n_found /= 2;
        }
    }

    /// Leaves out the finds from this one on.
    fn leave_out(&mut self, n_found: u32) {
        self.n_found = n_found;
        self.n_shares = 0;
        let first = Share {
            found: Some(n_found),
            moved: false,
        };
        for held in self.of_sum.values_mut() {
            for weight in held.split_off(&first).into_values() {
                let sum = held.entry(Share::default()).or_default();
                *sum = sum.saturating_add(weight);
            }
            self.n_shares += n_more(held);
        }
    }
}

/// How many a sum has beyond the two that each may have.
fn n_more(held: &BTreeMap<Share, u64>) -> usize {
    held.len().saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wcprof_trace::model::{LockLook, Tables, Thread, ThreadId, WaitId};
    use wcprof_types::lock::FutexWords;
    use wcprof_types::{Avma, ThreadState, TimeNs, Wait};

    /// Check that waits of many threads over many looks have a bounded number of shares, all of their time, and the same
    /// shares in whatever order they come, and in however many parts.
    #[test]
    fn bounded() {
        const N_LOOKS: u64 = 4_096;
        const N_THREADS: u32 = 400;
        let mut tables = Tables::default();
        tables.waits.push(Wait {
            futex: Some(Avma(0x1000)),
            ..Wait::default()
        });
        tables.threads = vec![Thread::default(); N_THREADS as usize];
        let look = |at: u64| LockLook {
            address: Avma(0x1000),
            since: TimeNs(at),
            until: TimeNs(at + 1),
            words: FutexWords([at as u32, 0, 0, 0, 0, 0, 0]),
            ..LockLook::default()
        };
        // Ticks are so short that no look covers too little of one to count.
        tables.locks.looks = (0..N_LOOKS).map(look).collect();
        tables.header.rate_hz = u32::MAX;
        let locks = LockTimes::from_tables(&tables);
        let add_all = |threads: &mut dyn Iterator<Item = u32>| {
            let mut held = Held::default();
            for thread in threads {
                let span = Span {
                    thread: ThreadId(thread),
                    start: TimeNs(0),
                    end: TimeNs(N_LOOKS),
                    weight: N_LOOKS,
                    n_samples: 1,
                    state: ThreadState::Blocked,
                    wait: Some(WaitId(0)),
                    stack: None,
                };
                held.add(thread as usize, &span, &locks);
            }
            held
        };
        let one = add_all(&mut (0..1));
        assert_eq!(
            (one.n_shares, one.n_found),
            (N_LOOKS as usize - 2, u32::MAX)
        );
        let all = add_all(&mut (0..N_THREADS));
        let n_shares = all.of_sum.values().map(n_more).sum::<usize>();
        assert_eq!(all.n_shares, n_shares);
        assert!((MAX_KEPT / 4..=MAX_KEPT).contains(&n_shares), "{n_shares}");
        for held in all.of_sum.values() {
            assert_eq!(held.values().sum::<u64>(), N_LOOKS);
        }
        let parts = |threads: u32| {
            let of_part = |first: u32| (first..N_THREADS).step_by(threads as usize);
            let mut parts: Vec<Held> = (0..threads).map(|n| add_all(&mut of_part(n))).collect();
            Held::settle(parts.iter_mut());
            let n_found = parts[0].n_found;
            let sums = parts.into_iter().flat_map(|part| part.of_sum);
            (sums.collect::<HashMap<_, _>>(), n_found)
        };
        assert!(parts(8) == (all.of_sum.clone(), all.n_found));
        let reversed = add_all(&mut (0..N_THREADS).rev());
        assert_eq!(
            (reversed.of_sum, reversed.n_found),
            (all.of_sum, all.n_found)
        );
    }
}
