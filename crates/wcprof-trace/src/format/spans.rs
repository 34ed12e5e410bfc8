//! Spans in columns, each value as its difference from a guess made of earlier spans. Most
//! differences are zero, which compression removes.
//!
//! The file counts microseconds: nanoseconds are noise to a sampler, and noise does not compress.
//! What a weight has beyond whole microseconds is added to the thread's next one.

use wcprof_types::ThreadState;

use super::codec::{Sizes, Table};
use super::wire::{check_interval, put, put_delta};
use crate::error::Malformed;
use crate::model::{Span, StackId, ThreadId, WaitId};

pub(super) const STATE_MASK: u8 = 0b111;
pub(super) const HAS_WAIT: u8 = 1 << 3;
pub(super) const HAS_STACK: u8 = 1 << 4;
/// Begins where the thread's span before ended.
pub(super) const NEXT_INTERVAL: u8 = 1 << 5;
/// Has the interval of the thread's span before.
pub(super) const SAME_INTERVAL: u8 = 1 << 6;
pub(super) const WEIGHT_AS_GUESSED: u8 = 1 << 7;

pub(super) const N_COLUMNS: usize = 8;

/// Columns by number, in the order of the file.
const FLAGS: usize = 0;
const THREAD: usize = 1;
const START: usize = 2;
const END: usize = 3;
const WEIGHT: usize = 4;
const N_SAMPLES: usize = 5;
const WAIT: usize = 6;
const STACK: usize = 7;

pub(super) const NS_PER_US: u64 = 1000;

/// What was last seen of a thread; times in microseconds.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Last {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of the interval, what no span has claimed.
    pub(super) left: u64,
    pub(super) weight: u64,
    pub(super) stack: u32,
    pub(super) wait: u32,
    pub(super) blocked: bool,
}

impl Last {
    /// That of a thread without a span, in a section whose times begin here.
    pub(super) fn at(base: u64) -> Self {
        Self {
            start: base,
            end: base,
            ..Self::default()
        }
    }

    /// The weight to expect in the same interval: a wait that ended and the one after it share
    /// what is left to them evenly.
    #[inline]
    pub(super) fn guess(&self, state: ThreadState) -> u64 {
        match state {
            ThreadState::Blocked if self.blocked => self.weight,
            _ => self.left,
        }
    }

    #[inline]
    pub(super) fn take(&mut self, state: ThreadState, weight: u64) {
        self.left = self.left.saturating_sub(weight);
        self.weight = weight;
        self.blocked = state == ThreadState::Blocked;
    }
}

/// A weight that is not the guess: what it lacks, or itself, whichever is shorter.
fn put_weight(out: &mut Vec<u8>, guess: u64, weight: u64) {
    match guess.checked_sub(weight) {
        Some(lack) if lack < weight => put(out, lack << 1),
        _ => put(out, weight << 1 | 1),
    }
}

/// Microseconds of the file as nanoseconds.
pub(super) fn to_ns(us: u64) -> Result<u64, Malformed> {
    us.checked_mul(NS_PER_US).ok_or(Malformed::NumberTooLarge)
}

/// The place of a thread that has no span in the section yet.
const NO_PLACE: u32 = u32::MAX;

/// Spans that are not written yet. A section stands alone: it lists its threads, and its differences begin at
/// a time of its own.
#[derive(Debug, Default)]
pub(crate) struct SpanWriter {
    n: u64,
    columns: [Vec<u8>; N_COLUMNS],
    /// In the order of their first spans.
    threads: Vec<ThreadId>,
    lasts: Vec<Last>,
    /// By thread: its place in these lists.
    places: Vec<u32>,
    /// By thread: nanoseconds of weight that are in no section yet.
    unwritten_ns: Vec<u64>,
    /// The start of the first span.
    base: u64,
    /// Of the span before: the place of its thread, and its end.
    place: u32,
    end: u64,
    /// The earliest start and the latest end, ns.
    times: (u64, u64),
}

impl SpanWriter {
    /// Bytes in all columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// The earliest start and the latest end of its spans, ns; `None` without spans.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        (self.n > 0).then_some(self.times)
    }

    /// The threads that have spans.
    pub(crate) fn threads(&self) -> &[ThreadId] {
        &self.threads
    }

    /// Appends the section's content and begins anew; nothing of a weight is lost. Nothing without spans.
    pub(crate) fn take_into(&mut self, out: &mut Vec<u8>) {
        if self.n == 0 {
            return;
        }
        put(out, self.threads.len() as u64);
        let mut before = 0;
        for thread in self.threads.drain(..) {
            put_delta(out, thread.0.into(), before);
            before = thread.0.into();
            self.places[thread.0 as usize] = NO_PLACE;
        }
        self.lasts.clear();
        put(out, self.base);
        put(out, N_COLUMNS as u64);
        put(out, self.n);
        for column in &mut self.columns {
            put(out, column.len() as u64);
            out.append(column);
        }
        self.n = 0;
    }

    /// The place of a thread in the section.
    fn place(&mut self, thread: ThreadId) -> u32 {
        let at = thread.0 as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, NO_PLACE);
            self.unwritten_ns.resize(at + 1, 0);
        }
        if self.places[at] == NO_PLACE {
            self.places[at] = self.threads.len() as u32;
            self.threads.push(thread);
            self.lasts.push(Last::at(self.base));
        }
        self.places[at]
    }

    /// Appends a span, which the caller has checked.
    pub(crate) fn put(&mut self, span: &Span) {
        let (start, end) = (span.start.0 / NS_PER_US, span.end.0 / NS_PER_US);
        if self.n == 0 {
            (self.base, self.place, self.end) = (start, 0, start);
            self.times = (span.start.0, span.end.0);
        }
        self.times = (self.times.0.min(span.start.0), self.times.1.max(span.end.0));
        self.n += 1;
        let place = self.place(span.thread);
        let columns = &mut self.columns;
        put_delta(&mut columns[THREAD], place.into(), self.place.into());
        let end_before = self.end;
        (self.place, self.end) = (place, end);
        let last = &mut self.lasts[place as usize];
        let unwritten_ns = &mut self.unwritten_ns[span.thread.0 as usize];
        let weight_ns = span.weight.saturating_add(*unwritten_ns);
        let mut weight = weight_ns / NS_PER_US;
        if span.weight <= span.end.0 - span.start.0 {
            // Nor does it become more than its interval.
            weight = weight.min(end - start);
        }
        *unwritten_ns = weight_ns - weight * NS_PER_US;
        let mut flags = span.state.code() & STATE_MASK;
        let guess = if start == last.start && end == last.end {
            flags |= SAME_INTERVAL;
            last.guess(span.state)
        } else {
            if start == last.end {
                flags |= NEXT_INTERVAL;
            } else {
                put_delta(&mut columns[START], start, last.end);
            }
            put_delta(&mut columns[END], end, end_before);
            (last.start, last.end, last.left) = (start, end, end - start);
            last.left
        };
        if weight == guess {
            flags |= WEIGHT_AS_GUESSED;
        } else {
            put_weight(&mut columns[WEIGHT], guess, weight);
        }
        put(&mut columns[N_SAMPLES], span.n_samples.into());
        last.take(span.state, weight);
        if let Some(WaitId(wait)) = span.wait {
            flags |= HAS_WAIT;
            put_delta(&mut columns[WAIT], wait.into(), last.wait.into());
            last.wait = wait;
        }
        if let Some(StackId(stack)) = span.stack {
            flags |= HAS_STACK;
            put_delta(&mut columns[STACK], stack.into(), last.stack.into());
            last.stack = stack;
        }
        columns[FLAGS].push(flags);
    }
}

/// Refuses a span that no reader would take.
pub(crate) fn check(span: &Span, sizes: &Sizes) -> Result<(), Malformed> {
    sizes.check(Table::Threads, Some(span.thread.0))?;
    sizes.check(Table::Stacks, span.stack.map(|id| id.0))?;
    sizes.check(Table::Waits, span.wait.map(|id| id.0))?;
    check_interval(span.start.0, span.end.0)
}

/// The states by their code.
pub(super) const STATES: [ThreadState; STATE_MASK as usize + 1] = [
    ThreadState::OnCpu,
    ThreadState::Guest,
    ThreadState::Runnable,
    ThreadState::Blocked,
    ThreadState::StealIrq,
    ThreadState::Unknown,
    ThreadState::VmExit,
    ThreadState::Other(7),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a state is read back from the code it is written as.
    #[test]
    fn states() {
        for (code, state) in (0..).zip(STATES) {
            assert_eq!(state.code(), code);
        }
    }
}
