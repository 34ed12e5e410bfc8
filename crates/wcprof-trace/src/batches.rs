//! The spans of a trace, many at a time, on another thread than the one that reads them.

use std::io::Read;
use std::sync::mpsc::{channel, sync_channel};

use crate::error::TraceError;
use crate::model::{Span, Tables};
use crate::reader::{Ending, TraceReader};

/// Spans of a batch. With what is made of it, it fits the second cache of a processor.
const BATCH: usize = 1 << 13;
/// Batches that may wait for `each`.
const MAX_WAITING: usize = 8;

impl<R: Read> TraceReader<R> {
    /// As [`read`](Self::read), until `enough` says so of the tables; it is asked after each block.
    /// From there on spans are skipped, unchecked, so that the tables are read in little time; then
    /// begins and ends of threads are as far as they were read. The last value is whether that
    /// happened. `each` gets thousands of spans at a time (in the order of the trace), and runs on a
    /// thread of its own.
    pub fn read_batches_until(
        self,
        enough: impl FnMut(&Tables) -> bool,
        mut each: impl FnMut(&[Span]) + Send,
    ) -> Result<(Tables, Ending, bool), TraceError> {
        let (sender, batches) = sync_channel::<Vec<Span>>(MAX_WAITING);
        // Used ones come back, so that memory is taken once.
        let (used, usable) = channel();
        // On a thread of rayon's, which `each` can then use without waiting for another one to wake.
        rayon::in_place_scope(|scope| {
            scope.spawn(move |_| {
                for mut batch in batches {
                    each(&batch);
                    batch.clear();
                    let _ = used.send(batch);
                }
            });
            let mut spans = Vec::with_capacity(BATCH);
            let read = self.read_spans_until(enough, |_, span| {
                spans.push(span);
                if spans.len() == BATCH {
                    let next = usable.try_recv();
                    let next = next.unwrap_or_else(|_| Vec::with_capacity(BATCH));
                    // The other side takes until this one ends, or panics, which the scope passes on.
                    let _ = sender.send(std::mem::replace(&mut spans, next));
                }
            });
            let _ = sender.send(spans);
            drop(sender);
            read
        })
    }
}
