//! Spans in columns, each value as its difference from a guess made of earlier spans. Most
//! differences are zero, which compression removes.
//!
//! The file counts microseconds: nanoseconds are noise to a sampler, and noise does not compress.
//! What a weight has beyond whole microseconds is added to the thread's next one.

use wcprof_types::{ThreadState, TimeNs};

use super::wire::{Input, known, put, put_delta};
use crate::error::Malformed;
use crate::limits::MAX_TIME_NS;
use crate::model::{Span, StackId, ThreadId, WaitId};

const STATE_MASK: u8 = 0b111;
const HAS_WAIT: u8 = 1 << 3;
const HAS_STACK: u8 = 1 << 4;
/// Begins where the thread's span before ended.
const NEXT_INTERVAL: u8 = 1 << 5;
/// Has the interval of the thread's span before.
const SAME_INTERVAL: u8 = 1 << 6;
const WEIGHT_AS_GUESSED: u8 = 1 << 7;

const N_COLUMNS: usize = 8;

/// Columns of the spans that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    n: u64,
    flags: Vec<u8>,
    thread: Vec<u8>,
    start: Vec<u8>,
    end: Vec<u8>,
    weight: Vec<u8>,
    n_samples: Vec<u8>,
    wait: Vec<u8>,
    stack: Vec<u8>,
}

impl Columns {
    fn all(&self) -> [&Vec<u8>; N_COLUMNS] {
        [
            &self.flags,
            &self.thread,
            &self.start,
            &self.end,
            &self.weight,
            &self.n_samples,
            &self.wait,
            &self.stack,
        ]
    }

    /// Bytes in all columns.
    pub(crate) fn len(&self) -> usize {
        self.all().iter().map(|column| column.len()).sum()
    }

    /// Appends the section's content and empties the columns. Nothing without spans.
    pub(crate) fn take_into(&mut self, out: &mut Vec<u8>) {
        if self.n == 0 {
            return;
        }
        put(out, self.n);
        for column in self.all() {
            put(out, column.len() as u64);
            out.extend_from_slice(column);
        }
        self.n = 0;
        for column in [
            &mut self.flags,
            &mut self.thread,
            &mut self.start,
            &mut self.end,
            &mut self.weight,
            &mut self.n_samples,
            &mut self.wait,
            &mut self.stack,
        ] {
            column.clear();
        }
    }
}

const NS_PER_US: u64 = 1000;

/// What was last seen of a thread; times in microseconds.
#[derive(Copy, Clone, Debug, Default)]
struct Last {
    start: u64,
    end: u64,
    /// Of the interval, what no span has claimed.
    left: u64,
    weight: u64,
    blocked: bool,
    stack: u32,
    wait: u32,
    /// Nanoseconds of weight that are not written yet.
    unwritten_ns: u64,
}

impl Last {
    /// The weight to expect in the same interval: a wait that ended and the one after it share
    /// what is left to them evenly.
    fn guess(&self, state: ThreadState) -> u64 {
        match state {
            ThreadState::Blocked if self.blocked => self.weight,
            _ => self.left,
        }
    }

    fn take(&mut self, state: ThreadState, weight: u64) {
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

fn read_weight(input: &mut Input<'_>, guess: u64) -> Result<u64, Malformed> {
    let n = input.number()?;
    match n & 1 {
        1 => Ok(n >> 1),
        _ => guess.checked_sub(n >> 1).ok_or(Malformed::NumberTooLarge),
    }
}

/// Microseconds of the file as nanoseconds.
fn to_ns(us: u64) -> Result<u64, Malformed> {
    us.checked_mul(NS_PER_US).ok_or(Malformed::NumberTooLarge)
}

/// What the guesses are made of. It goes on from block to block.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    threads: Vec<Last>,
    thread: u32,
    end: u64,
}

impl Guesses {
    fn last(&mut self, thread: u32) -> &mut Last {
        let i = thread as usize;
        if i >= self.threads.len() {
            self.threads.resize(i + 1, Last::default());
        }
        &mut self.threads[i]
    }

    /// Begins anew, as a reader of what follows will; nothing of a weight is lost.
    pub(crate) fn restart(&mut self) {
        for last in &mut self.threads {
            *last = Last {
                unwritten_ns: last.unwritten_ns,
                ..Last::default()
            };
        }
        (self.thread, self.end) = (0, 0);
    }

    /// Appends a span, which the caller has checked.
    pub(crate) fn put(&mut self, columns: &mut Columns, span: &Span) {
        put_delta(
            &mut columns.thread,
            span.thread.0.into(),
            self.thread.into(),
        );
        let (start, end) = (span.start.0 / NS_PER_US, span.end.0 / NS_PER_US);
        let end_before = self.end;
        (self.thread, self.end) = (span.thread.0, end);
        let last = self.last(span.thread.0);
        let weight_ns = span.weight.saturating_add(last.unwritten_ns);
        let mut weight = weight_ns / NS_PER_US;
        if span.weight <= span.end.0 - span.start.0 {
            // Nor does it become more than its interval.
            weight = weight.min(end - start);
        }
        last.unwritten_ns = weight_ns - weight * NS_PER_US;
        let mut flags = state_code(span.state);
        let guess = if start == last.start && end == last.end {
            flags |= SAME_INTERVAL;
            last.guess(span.state)
        } else {
            if start == last.end {
                flags |= NEXT_INTERVAL;
            } else {
                put_delta(&mut columns.start, start, last.end);
            }
            put_delta(&mut columns.end, end, end_before);
            (last.start, last.end, last.left) = (start, end, end - start);
            last.left
        };
        if weight == guess {
            flags |= WEIGHT_AS_GUESSED;
        } else {
            put_weight(&mut columns.weight, guess, weight);
        }
        put(&mut columns.n_samples, span.n_samples.into());
        last.take(span.state, weight);
        if let Some(WaitId(wait)) = span.wait {
            flags |= HAS_WAIT;
            put_delta(&mut columns.wait, wait.into(), last.wait.into());
            last.wait = wait;
        }
        if let Some(StackId(stack)) = span.stack {
            flags |= HAS_STACK;
            put_delta(&mut columns.stack, stack.into(), last.stack.into());
            last.stack = stack;
        }
        columns.flags.push(flags);
        columns.n += 1;
    }

    /// Reads a whole section and hands over each span.
    pub(crate) fn read(
        &mut self,
        input: &mut Input<'_>,
        sizes: Sizes,
        mut each: impl FnMut(Span) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let n = input.count()?;
        let mut columns = [Input(&[]); N_COLUMNS];
        for column in &mut columns {
            let len = input.number()?;
            *column = Input(input.bytes(len)?);
        }
        for _ in 0..n {
            each(self.next(&mut columns, sizes)?)?;
        }
        columns.iter().try_for_each(Input::end)
    }

    fn next(
        &mut self,
        columns: &mut [Input<'_>; N_COLUMNS],
        sizes: Sizes,
    ) -> Result<Span, Malformed> {
        let [flags, thread, start, end, weight, n_samples, wait, stack] = columns;
        let flags = flags.byte()?;
        let thread = thread.delta32(self.thread)?;
        known("thread", thread, sizes.n_threads)?;
        self.thread = thread;
        let state = state(flags & STATE_MASK)?;
        let end_before = self.end;
        let last = self.last(thread);
        let guess = if flags & SAME_INTERVAL != 0 {
            last.guess(state)
        } else {
            let from = match flags & NEXT_INTERVAL {
                0 => start.delta(last.end)?,
                _ => last.end,
            };
            let to = end.delta(end_before)?;
            check_interval(to_ns(from)?, to_ns(to)?)?;
            (last.start, last.end, last.left) = (from, to, to - from);
            last.left
        };
        let weight = match flags & WEIGHT_AS_GUESSED {
            0 => read_weight(weight, guess)?,
            _ => guess,
        };
        last.take(state, weight);
        if flags & HAS_WAIT != 0 {
            last.wait = wait.delta32(last.wait)?;
            known("wait", last.wait, sizes.n_waits)?;
        }
        if flags & HAS_STACK != 0 {
            last.stack = stack.delta32(last.stack)?;
            known("stack", last.stack, sizes.n_stacks)?;
        }
        let span = Span {
            thread: ThreadId(thread),
            start: TimeNs(to_ns(last.start)?),
            end: TimeNs(to_ns(last.end)?),
            weight: to_ns(weight)?,
            n_samples: n_samples.number32()?,
            state,
            wait: (flags & HAS_WAIT != 0).then_some(WaitId(last.wait)),
            stack: (flags & HAS_STACK != 0).then_some(StackId(last.stack)),
        };
        self.end = last.end;
        Ok(span)
    }
}

/// Sizes of the tables that spans refer to.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Sizes {
    pub(crate) n_threads: usize,
    pub(crate) n_stacks: usize,
    pub(crate) n_waits: usize,
}

impl Sizes {
    /// Refuses a span that no reader would take.
    pub(crate) fn check(&self, span: &Span) -> Result<(), Malformed> {
        known("thread", span.thread.0, self.n_threads)?;
        if let Some(stack) = span.stack {
            known("stack", stack.0, self.n_stacks)?;
        }
        if let Some(wait) = span.wait {
            known("wait", wait.0, self.n_waits)?;
        }
        check_interval(span.start.0, span.end.0)
    }
}

fn check_interval(start: u64, end: u64) -> Result<(), Malformed> {
    if start > end || end > MAX_TIME_NS {
        return Err(Malformed::Interval { start, end });
    }
    Ok(())
}

fn state_code(state: ThreadState) -> u8 {
    match state {
        ThreadState::OnCpu => 0,
        ThreadState::Guest => 1,
        ThreadState::Runnable => 2,
        ThreadState::Blocked => 3,
        ThreadState::StealIrq => 4,
        ThreadState::Unknown => 5,
    }
}

fn state(code: u8) -> Result<ThreadState, Malformed> {
    Ok(match code {
        0 => ThreadState::OnCpu,
        1 => ThreadState::Guest,
        2 => ThreadState::Runnable,
        3 => ThreadState::Blocked,
        4 => ThreadState::StealIrq,
        5 => ThreadState::Unknown,
        _ => {
            return Err(Malformed::UnknownCode {
                what: "thread state",
                code: code.into(),
            });
        }
    })
}
