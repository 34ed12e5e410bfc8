//! Spans, read a second time, to the rows of the profile that was made of them: what exports with a
//! time axis need.

use std::collections::HashMap;

use wcprof_trace::FastState;
use wcprof_trace::model::Span;
use wcprof_types::TimeNs;

use crate::builder::{Key, part};
use crate::renamed::RenamedStacks;

/// Finds the row of a span.
#[derive(Clone, Debug)]
pub struct SpanRows {
    pub(crate) rows: HashMap<Key, usize, FastState>,
    pub(crate) window: Option<(TimeNs, TimeNs)>,
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
        self.find_by(span, |key| self.rows.get(key).copied())
    }

    /// For many spans in the order of a trace.
    pub fn finder(&self) -> RowFinder<'_> {
        RowFinder {
            rows: self,
            recent: Vec::new(),
        }
    }

    fn find_by(&self, span: &Span, row: impl FnOnce(&Key) -> Option<usize>) -> Option<RowSpan> {
        let part = part(span, self.window)?;
        Some(RowSpan {
            row: row(&Key::of(span, &self.renamed))?,
            start: part.start,
            end: part.end,
            weight: part.weight,
            n_samples: part.n_samples,
        })
    }
}

const N_RECENT: usize = 4;

/// Finds the rows of spans one after another: a thread goes to and fro between a few.
#[derive(Clone, Debug)]
pub struct RowFinder<'a> {
    rows: &'a SpanRows,
    /// By thread: the last keys with their rows, newest first.
    recent: Vec<[Option<(Key, usize)>; N_RECENT]>,
}

impl RowFinder<'_> {
    /// As [`SpanRows::find`].
    pub fn find(&mut self, span: &Span) -> Option<RowSpan> {
        let thread = span.thread.0 as usize;
        // Ids are dense; a forged one must not size a table.
        if thread >= self.recent.len() && thread < 1 << 20 {
            self.recent.resize(thread + 1, [None; N_RECENT]);
        }
        let Some(recent) = self.recent.get_mut(thread) else {
            return self.rows.find(span);
        };
        let rows = self.rows;
        rows.find_by(span, |key| {
            for at in 0..N_RECENT {
                if let Some((known, row)) = recent[at]
                    && known == *key
                {
                    recent[..=at].rotate_right(1);
                    return Some(row);
                }
            }
            let row = *rows.rows.get(key)?;
            recent.rotate_right(1);
            recent[0] = Some((*key, row));
            Some(row)
        })
    }
}
