//! Spans in columns, each value as its difference from a guess made of earlier spans. Most
//! differences are zero, which compression removes.
//!
//! The file counts microseconds: nanoseconds are noise to a sampler, and noise does not compress.
//! What a weight has beyond whole microseconds is added to the thread's next one.

use wcprof_types::ThreadState;

use super::codec::{Sizes, Table};
use super::wire::{check_interval, put, put_delta, unknown};
use crate::error::Malformed;
use crate::model::{Span, StackId, WaitId};

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

/// Columns of the spans that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    n: u64,
    columns: [Vec<u8>; N_COLUMNS],
}

impl Columns {
    /// Bytes in all columns.
    pub(crate) fn len(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// Appends the section's content and empties the columns. Nothing without spans.
    pub(crate) fn take_into(&mut self, out: &mut Vec<u8>) {
        if self.n == 0 {
            return;
        }
        put(out, self.n);
        for column in &mut self.columns {
            put(out, column.len() as u64);
            out.append(column);
        }
        self.n = 0;
    }
}

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

/// What the guesses are made of. It goes on from block to block.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    threads: Vec<Last>,
    /// By thread: nanoseconds of weight that are not written yet.
    unwritten_ns: Vec<u64>,
    thread: u32,
    end: u64,
}

impl Guesses {
    /// Begins anew, as a reader of what follows will; nothing of a weight is lost.
    pub(crate) fn restart(&mut self) {
        self.threads.fill(Last::default());
        (self.thread, self.end) = (0, 0);
    }

    /// Appends a span, which the caller has checked.
    pub(crate) fn put(&mut self, columns: &mut Columns, span: &Span) {
        columns.n += 1;
        let columns = &mut columns.columns;
        let thread = u64::from(span.thread.0);
        put_delta(&mut columns[THREAD], thread, self.thread.into());
        let (start, end) = (span.start.0 / NS_PER_US, span.end.0 / NS_PER_US);
        let end_before = self.end;
        (self.thread, self.end) = (span.thread.0, end);
        let at = span.thread.0 as usize;
        if at >= self.threads.len() {
            self.threads.resize(at + 1, Last::default());
            self.unwritten_ns.resize(at + 1, 0);
        }
        let (last, unwritten_ns) = (&mut self.threads[at], &mut self.unwritten_ns[at]);
        let weight_ns = span.weight.saturating_add(*unwritten_ns);
        let mut weight = weight_ns / NS_PER_US;
        if span.weight <= span.end.0 - span.start.0 {
            // Nor does it become more than its interval.
            weight = weight.min(end - start);
        }
        *unwritten_ns = weight_ns - weight * NS_PER_US;
        let mut flags = span.state as u8;
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

/// The states by their code: the order in which they are declared.
pub(super) const STATES: [Option<ThreadState>; STATE_MASK as usize + 1] = [
    Some(ThreadState::OnCpu),
    Some(ThreadState::Guest),
    Some(ThreadState::Runnable),
    Some(ThreadState::Blocked),
    Some(ThreadState::StealIrq),
    Some(ThreadState::Unknown),
    None,
    None,
];

pub(super) fn state(code: u8) -> Result<ThreadState, Malformed> {
    let known = STATES.get(usize::from(code)).copied().flatten();
    known.ok_or_else(|| unknown("thread state", code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a state is read back from the code it is written as.
    #[test]
    fn states() {
        for (code, known) in (0..).zip(STATES) {
            assert_eq!(state(code).ok(), known);
            assert!(known.is_none_or(|state| state as u8 == code));
        }
        assert!(state(STATES.len() as u8).is_err());
    }
}
