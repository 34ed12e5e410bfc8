//! Spans, read a second time, to the rows of the profile that was made of them: what exports with a
//! time axis need.

use wcprof_trace::model::Span;

use crate::index::{Index, Key};
use crate::renamed::RenamedStacks;
use crate::window::{Window, part, share};

/// Finds the row of a span.
#[derive(Clone, Debug)]
pub struct SpanRows {
    pub(crate) rows: Index<usize>,
    pub(crate) window: Window,
    pub(crate) renamed: RenamedStacks,
}

/// A span as a part of its row.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RowSpan {
    /// Index into [`Profile::rows`](crate::model::Profile::rows).
    pub row: usize,
    /// Begin of the interval that the weight lies in, ns since the recording (or its window) began.
    pub start: u64,
    /// End of that interval.
    pub end: u64,
    /// Nanoseconds of wall-clock time, at most `end - start`.
    pub weight: u64,
    /// Observations it stands on.
    pub n_samples: u64,
}

impl RowSpan {
    /// Its parts in slices of `slice_ns`, in order, each with the number of its slice. `began` is when the recording (or
    /// its window) began, ns since slice 0 begins. Weight and observations are shared out evenly, and add up.
    pub fn by_slice(self, slice_ns: u64, began: u64) -> impl Iterator<Item = (u64, Self)> {
        let slice_ns = slice_ns.max(1);
        let (start, end) = (self.start, self.end.max(self.start));
        let slice_of = move |time: u64| began.saturating_add(time) / slice_ns;
        // A moment belongs to the slice that it ends, as to a window.
        let last = slice_of(end.saturating_sub(1));
        (slice_of(start).min(last)..=last).map(move |slice| {
            let since_began = |time: u64| time.saturating_sub(began).clamp(start, end);
            let from = since_began(slice.saturating_mul(slice_ns));
            let to = since_began(slice.saturating_add(1).saturating_mul(slice_ns));
            let share = |whole: u64| match start == end {
                true => whole,
                false => share(whole, (start, end), (from, to)),
            };
            let part = Self {
                row: self.row,
                start: from,
                end: to,
                weight: share(self.weight),
                n_samples: share(self.n_samples),
            };
            (slice, part)
        })
    }
}

impl SpanRows {
    /// The row of a span and what of the span lies in the window; `None` outside the window, and for
    /// a span that was not added.
    pub fn find(&self, span: &Span) -> Option<RowSpan> {
        let part = part(span, self.window)?;
        Some(RowSpan {
            row: *self.rows.find(&Key::from_span(span, &self.renamed))?,
            start: part.start,
            end: part.end,
            weight: part.weight,
            n_samples: part.n_samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that slices begin where the clock says, and that the parts of a span add up.
    #[test]
    fn slices() {
        let span = RowSpan {
            row: 3,
            start: 5,
            end: 36,
            weight: 17,
            n_samples: 4,
        };
        // The recording began 7 ns into slice 10.
        let parts: Vec<_> = span.by_slice(10, 107).collect();
        let times: Vec<_> = parts.iter().map(|(n, p)| (*n, p.start, p.end)).collect();
        assert_eq!(
            times,
            [(11, 5, 13), (12, 13, 23), (13, 23, 33), (14, 33, 36)]
        );
        let weights: Vec<_> = parts.iter().map(|(_, p)| (p.weight, p.n_samples)).collect();
        assert_eq!(weights, [(4, 1), (5, 1), (6, 1), (2, 1)]);
        assert_eq!(weights.iter().map(|(w, _)| w).sum::<u64>(), 17);
    }

    /// Check that a moment has one slice, also at its end, and that extremes are no overflow.
    #[test]
    fn moments() {
        let span = |start, end| RowSpan {
            row: 0,
            start,
            end,
            weight: 1,
            n_samples: 1,
        };
        let slices = |span: RowSpan, ns, began| -> Vec<_> {
            let parts = span.by_slice(ns, began);
            parts.map(|(n, p)| (n, p.weight, p.n_samples)).collect()
        };
        assert_eq!(slices(span(10, 10), 10, 0), [(0, 1, 1)]);
        assert_eq!(slices(span(0, 0), 10, 0), [(0, 1, 1)]);
        assert_eq!(slices(span(11, 11), 10, 0), [(1, 1, 1)]);
        assert_eq!(slices(span(0, 10), 10, 0), [(0, 1, 1)]);
        assert_eq!(slices(span(0, u64::MAX), u64::MAX, u64::MAX).len(), 1);
        assert_eq!(slices(span(5, 6), 0, 0), [(5, 1, 1)]);
    }
}
