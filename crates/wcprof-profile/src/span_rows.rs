//! Spans, read a second time, to the rows of the profile that was made of them: what exports with a
//! time axis need.

use wcprof_trace::model::Span;

use crate::index::{Index, Key};
use crate::renamed::RenamedStacks;
use crate::window::{Window, part};

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
