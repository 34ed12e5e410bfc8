//! Spans in the order of a trace to the same thread by thread.

use wcprof_trace::model::Span;
use wcprof_types::TimeNs;

use crate::index::place_of;

/// Some of a trace's spans, thread by thread, those of each in their order. They are copied: to jump to each
/// where it came would be to wait for memory each time.
#[derive(Clone, Debug, Default)]
pub struct SpanBatch {
    /// By thread: where its next span goes.
    next: Vec<u32>,
    /// The first so many hold the spans.
    sorted: Vec<Span>,
    /// Where each came.
    order: Vec<u32>,
    n: usize,
    latest: TimeNs,
}

impl SpanBatch {
    /// Takes these spans (at most 2^32) in place of those before.
    pub fn sort(&mut self, spans: &[Span]) {
        self.next.clear();
        self.latest = TimeNs(0);
        for span in spans {
            let thread = place_of(span.thread);
            if thread >= self.next.len() {
                self.next.resize(thread + 1, 0);
            }
            self.next[thread] += 1;
            self.latest = self.latest.max(span.end).max(span.start);
        }
        let mut sum = 0;
        for next in &mut self.next {
            sum += std::mem::replace(next, sum);
        }
        self.n = spans.len();
        if let (Some(any), true) = (spans.first(), self.sorted.len() < self.n) {
            self.sorted.resize(self.n, any.clone());
            self.order.resize(self.n, 0);
        }
        for (at, span) in (0..).zip(spans) {
            let next = &mut self.next[place_of(span.thread)];
            self.order[*next as usize] = at;
            self.sorted[*next as usize].clone_from(span);
            *next += 1;
        }
    }

    /// The spans, and where each came.
    pub(crate) fn by_thread(&self) -> (&[Span], &[u32]) {
        (&self.sorted[..self.n], &self.order[..self.n])
    }

    /// The spans as they came.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Span> {
        let (spans, order) = self.by_thread();
        let mut places = vec![0; self.n];
        for (i, &at) in order.iter().enumerate() {
            places[at as usize] = i;
        }
        places.into_iter().map(|i| &spans[i])
    }

    /// The latest moment in it; 0 without spans.
    pub(crate) fn latest(&self) -> TimeNs {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use wcprof_trace::model::ThreadId;
    use wcprof_types::ThreadState;

    use super::*;

    fn span(thread: u32, end: u64) -> Span {
        Span {
            thread: ThreadId(thread),
            start: TimeNs(end - 1),
            end: TimeNs(end),
            weight: 1,
            n_samples: 1,
            state: ThreadState::Blocked,
            wait: None,
            stack: None,
        }
    }

    /// Check that spans are thread by thread, those of a thread as they came, and can be had as they all
    /// came, also after a longer batch.
    #[test]
    fn sorted() {
        let mut batch = SpanBatch::default();
        let longer: Vec<Span> = (1..50).map(|i| span(i % 5, u64::from(i))).collect();
        for spans in [
            &longer[..],
            &[span(9, 5), span(2, 3), span(9, 4), span(2, 7), span(0, 1)],
            &[],
        ] {
            batch.sort(spans);
            assert!(batch.in_order().eq(spans));
            let latest = spans.iter().map(|span| span.end).max();
            assert_eq!(batch.latest(), latest.unwrap_or(TimeNs(0)));
            let mut expected: Vec<(u32, u32)> = (0..)
                .zip(spans)
                .map(|(at, span)| (span.thread.0, at))
                .collect();
            expected.sort_unstable();
            let (sorted, order) = batch.by_thread();
            let found = sorted
                .iter()
                .zip(order)
                .map(|(span, &at)| (span.thread.0, at));
            assert!(found.eq(expected));
        }
    }
}
