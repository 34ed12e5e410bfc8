//! Spans in the order of a trace to their order thread by thread.

use wcprof_trace::model::Span;

use crate::index::place_of;

/// Puts spans into order, by shards, and in each thread by thread. They are copied: to jump to each where it came would be
/// to wait for memory each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByThread {
    /// By place in that order: where the next span of the thread goes.
    next: Vec<u32>,
    /// The first so many hold the spans.
    sorted: Vec<Span>,
}

impl ByThread {
    /// The spans (at most 2^32) of each of `n_shards` shards, which are those of the threads whose id modulo their number is
    /// the shard; thread by thread, those of each thread as they come.
    pub(crate) fn sort(
        &mut self,
        spans: &[Span],
        n_shards: usize,
    ) -> impl Iterator<Item = &[Span]> {
        let last = spans.iter().map(|span| place_of(span.thread)).max();
        let n_each = last.unwrap_or(0) / n_shards + 1;
        let place = |span: &Span| {
            let thread = place_of(span.thread);
            thread % n_shards * n_each + thread / n_shards
        };
        self.next.clear();
        self.next.resize(n_shards * n_each, 0);
        for span in spans {
            self.next[place(span)] += 1;
        }
        let mut sum = 0;
        for next in &mut self.next {
            sum += std::mem::replace(next, sum);
        }
        if let (Some(any), true) = (spans.first(), self.sorted.len() < spans.len()) {
            self.sorted.resize(spans.len(), any.clone());
        }
        for span in spans {
            let next = &mut self.next[place(span)];
            self.sorted[*next as usize].clone_from(span);
            *next += 1;
        }
        // Where the last thread of a shard ends.
        let ends = self
            .next
            .chunks(n_each)
            .map(move |of_shard| of_shard[n_each - 1] as usize);
        let sorted = &self.sorted;
        ends.scan(0, move |begin, end| {
            Some(&sorted[std::mem::replace(begin, end)..end])
        })
    }
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::ThreadId;
    use wcprof_types::{ThreadState, TimeNs};

    use super::*;

    /// Check that spans are by shard and thread, those of a thread as they came, also after a longer list.
    #[test]
    fn sorted() {
        let mut by_thread = ByThread::default();
        let threads = [5, 0, 5, 2, 0, 5, 5];
        for n in [7, 4, 0, 6] {
            let span = |(at, &thread): (usize, &u32)| Span {
                thread: ThreadId(thread),
                start: TimeNs(0),
                end: TimeNs(1),
                weight: at as u64,
                n_samples: 1,
                state: ThreadState::Blocked,
                wait: None,
                stack: None,
            };
            let spans: Vec<Span> = threads[..n].iter().enumerate().map(span).collect();
            for n_shards in 1..8 {
                let shards: Vec<&[Span]> = by_thread.sort(&spans, n_shards).collect();
                assert_eq!(shards.len(), n_shards);
                for (shard, found) in shards.into_iter().enumerate() {
                    let mut expected = spans.clone();
                    expected.retain(|span| span.thread.0 as usize % n_shards == shard);
                    expected.sort_by_key(|span| span.thread);
                    assert_eq!(found, expected);
                }
            }
        }
    }
}
