//! Spans to samples in order of time, by thread.
//!
//! Samples of a thread that follow each other and belong to the same row of the profile are joined,
//! so that a thread that waits takes few entries however long it does. Where intervals overlap (a thread
//! ran for a part of one and waited for the rest), the order in them is not known: the samples are laid
//! one after another, each as long as its weight, those first whose interval ends first. A sample with
//! a long interval fills what the others leave, in pieces.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use wcprof_profile::RowSpan;
use wcprof_profile::model::Profile;

/// Longest stretch of joined samples, ns: viewers place a sample at one time.
const MAX_JOINED_NS: u64 = 100_000_000;

/// Time of one thread in one row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Index into [`Profile::rows`](wcprof_profile::model::Profile::rows).
    pub row: u32,
    /// Begin, ns since the recording (or the window) began. Not before the end of the thread's sample
    /// before it.
    pub start: u64,
    /// Nanoseconds of wall-clock time.
    pub weight: u64,
    /// End of the interval that the weight lies in, ns; only [`Timeline::sort`] uses it.
    until: u64,
}

impl Sample {
    /// End, ns since the recording (or the window) began.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.weight)
    }
}

/// The samples of each thread, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    threads: Vec<Vec<Sample>>,
}

impl Timeline {
    /// For the threads of a profile.
    pub fn new(profile: &Profile) -> Self {
        Self {
            threads: vec![Vec::new(); profile.threads.len()],
        }
    }

    /// Adds a span. What belongs to no thread of the profile is left out.
    pub fn add(&mut self, profile: &Profile, span: RowSpan) {
        let thread = profile.rows.get(span.row).map(|row| row.thread);
        let samples = thread.and_then(|thread| self.threads.get_mut(thread));
        let (Some(samples), Ok(row)) = (samples, u32::try_from(span.row)) else {
            return;
        };
        if span.weight == 0 {
            return;
        }
        if let Some(last) = samples.last_mut()
            && last.row == row
            && span.end.saturating_sub(last.start) <= MAX_JOINED_NS
        {
            last.until = last.until.max(span.end);
            last.weight = last.weight.saturating_add(span.weight);
            return;
        }
        samples.push(Sample {
            row,
            start: span.start,
            weight: span.weight,
            until: span.end,
        });
    }

    /// Puts the samples of each thread in order; call it once after the last [`add`](Self::add).
    pub fn sort(&mut self) {
        for samples in &mut self.threads {
            *samples = laid_out(std::mem::take(samples));
        }
    }

    /// The samples of a thread, by its index in the profile.
    pub fn of_thread(&self, thread: usize) -> &[Sample] {
        self.threads.get(thread).map_or(&[], Vec::as_slice)
    }
}

/// Samples whose intervals may overlap as ones that do not: at each time the one goes on whose interval
/// ends first.
fn laid_out(mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.sort_by_key(|s| (s.start, s.until));
    let mut laid: Vec<Sample> = Vec::with_capacity(samples.len());
    let mut begun: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut left: Vec<u64> = samples.iter().map(|s| s.weight).collect();
    let (mut now, mut next) = (0_u64, 0);
    loop {
        if begun.is_empty() {
            let Some(sample) = samples.get(next) else {
                return laid;
            };
            now = now.max(sample.start);
        }
        while let Some(sample) = samples.get(next).filter(|s| s.start <= now) {
            begun.push(Reverse((sample.until, next)));
            next += 1;
        }
        // Never empty: what begins next has begun.
        let Some(Reverse((until, at))) = begun.pop() else {
            return laid;
        };
        let length = match samples.get(next) {
            Some(next) => left[at].min(next.start - now),
            None => left[at],
        };
        put(&mut laid, samples[at].row, now, length);
        now = now.saturating_add(length);
        left[at] -= length;
        if left[at] > 0 {
            begun.push(Reverse((until, at)));
        }
    }
}

/// Adds a piece, as a part of the one before it if it goes on with it.
fn put(laid: &mut Vec<Sample>, row: u32, start: u64, length: u64) {
    match laid.last_mut() {
        Some(last)
            if last.row == row
                && last.end() == start
                && last.weight.saturating_add(length) <= MAX_JOINED_NS =>
        {
            last.weight += length;
            last.until = last.end();
        }
        _ => laid.push(Sample {
            row,
            start,
            weight: length,
            until: start.saturating_add(length),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay(samples: &[(u32, u64, u64, u64)]) -> Vec<(u32, u64, u64)> {
        let samples = samples
            .iter()
            .map(|&(row, start, until, weight)| Sample {
                row,
                start,
                weight,
                until,
            })
            .collect();
        let laid = laid_out(samples);
        laid.iter().map(|s| (s.row, s.start, s.weight)).collect()
    }

    /// Check that samples in one interval follow each other and later ones stay where they are.
    #[test]
    fn shared_interval() {
        let laid = lay(&[(0, 0, 10, 3), (1, 0, 10, 7), (2, 10, 20, 10)]);
        assert_eq!(laid, [(0, 0, 3), (1, 3, 7), (2, 10, 10)]);
    }

    /// Check that a sample with a long interval fills what short ones leave, and nothing is late.
    #[test]
    fn long_interval() {
        let laid = lay(&[(0, 0, 30, 9), (1, 0, 10, 7), (2, 10, 20, 6), (1, 20, 30, 8)]);
        assert_eq!(
            laid,
            [(1, 0, 7), (0, 7, 3), (2, 10, 6), (0, 16, 6), (1, 22, 8)]
        );
    }

    /// Check that a pause stays one, and that what is too long for its interval pushes what follows.
    #[test]
    fn pauses() {
        assert_eq!(
            lay(&[(0, 5, 10, 5), (0, 15, 20, 5)]),
            [(0, 5, 5), (0, 15, 5)]
        );
        assert_eq!(lay(&[(0, 0, 5, 8), (1, 5, 10, 5)]), [(0, 0, 8), (1, 8, 5)]);
    }
}
