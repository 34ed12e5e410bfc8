//! Spans in the order of a trace to their order thread by thread.

use wcprof_trace::model::{Span, ThreadId};

use crate::index::place_of;

/// Puts spans into order. They are copied: to jump to each where it came would be to wait for memory each
/// time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByThread {
    /// By thread: where its next span goes.
    next: Vec<u32>,
    /// The first so many hold the spans.
    sorted: Vec<Span>,
    /// Where each came.
    order: Vec<u32>,
}

impl ByThread {
    /// The spans (of at most 2^32) of threads that are `wanted`, thread by thread, those of each thread as
    /// they come; and the index that each has in `spans`.
    pub(crate) fn sort(
        &mut self,
        spans: &[Span],
        wanted: impl Fn(ThreadId) -> bool,
    ) -> (&[Span], &[u32]) {
        self.next.clear();
        for span in spans {
            let thread = place_of(span.thread);
            if thread >= self.next.len() {
                self.next.resize(thread + 1, 0);
            }
            self.next[thread] += u32::from(wanted(span.thread));
        }
        let mut sum = 0;
        for next in &mut self.next {
            sum += std::mem::replace(next, sum);
        }
        let n = sum as usize;
        if let (Some(any), true) = (spans.first(), self.sorted.len() < n) {
            self.sorted.resize(n, any.clone());
            self.order.resize(n, 0);
        }
        for (at, span) in (0..).zip(spans) {
            if wanted(span.thread) {
                let next = &mut self.next[place_of(span.thread)];
                self.order[*next as usize] = at;
                self.sorted[*next as usize].clone_from(span);
                *next += 1;
            }
        }
        (&self.sorted[..n], &self.order[..n])
    }
}

#[cfg(test)]
mod tests {
    use wcprof_types::{ThreadState, TimeNs};

    use super::*;

    /// Check that spans are thread by thread, those of a thread as they came, also after a longer list,
    /// and that threads can be left out.
    #[test]
    fn sorted() {
        let mut by_thread = ByThread::default();
        let threads = [5, 0, 5, 2, 0, 5, 5];
        for n in [7, 4, 0, 6] {
            let span = |&thread: &u32| Span {
                thread: ThreadId(thread),
                start: TimeNs(0),
                end: TimeNs(1),
                weight: 1,
                n_samples: 1,
                state: ThreadState::Blocked,
                wait: None,
                stack: None,
            };
            let spans: Vec<Span> = threads[..n].iter().map(span).collect();
            let mut expected: Vec<u32> = (0..n as u32).collect();
            expected.sort_by_key(|&at| threads[at as usize]);
            let mut check = |wanted: &dyn Fn(u32) -> bool| {
                expected.retain(|&at| wanted(threads[at as usize]));
                let (sorted, order) = by_thread.sort(&spans, |id| wanted(id.0));
                assert_eq!(order, expected);
                assert!(
                    sorted
                        .iter()
                        .eq(order.iter().map(|&at| &spans[at as usize]))
                );
            };
            check(&|_| true);
            check(&|thread| thread == 5);
        }
    }
}
