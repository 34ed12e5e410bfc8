//! Columns back to spans.
//!
//! Nearly all numbers are short. So a span's numbers are taken from words of fixed size, without branches
//! that the processor cannot predict. Anything unusual (a long number, the end of a column, an error)
//! leaves the span to the slow path, which checks each byte and says what is wrong.

use std::hint::select_unpredictable;

use wcprof_types::{ThreadState, TimeNs};

use super::codec::{Sizes, Table};
use super::spans::{
    HAS_STACK, HAS_WAIT, Last, N_COLUMNS, NEXT_INTERVAL, NS_PER_US, SAME_INTERVAL, STATE_MASK,
    STATES, WEIGHT_AS_GUESSED, to_ns,
};
use super::wire::{Input, check_interval, known, within};
use crate::error::Malformed;
use crate::limits::MAX_TIME_NS;
use crate::model::{Span, StackId, ThreadId, WaitId};

/// What was read of a thread; it lies in one line of the processor's cache. Times in microseconds.
#[derive(Copy, Clone, PartialEq, Debug)]
#[repr(align(64))]
struct Seen {
    last: Last,
    /// The first begin of a span and the last end of one.
    first: u64,
    latest: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            last: Last::default(),
            first: u64::MAX,
            latest: 0,
        }
    }
}

/// Where the next span begins, and what its guesses are made of.
#[derive(Copy, Clone)]
struct Cursor {
    /// By column.
    at: [usize; N_COLUMNS],
    thread: u32,
    end: u64,
}

/// Reads the spans of a section.
#[derive(Debug)]
struct SpanReader {
    /// By the thread's place in the section's list of threads.
    threads: Vec<Seen>,
    thread: u32,
    end: u64,
}

/// What a section begins with.
struct Beginning {
    reader: SpanReader,
    /// By place.
    threads: Vec<ThreadId>,
    n_columns: u64,
    /// Those of the tables, with places for threads.
    sizes: Sizes,
}

impl Beginning {
    fn read(input: &mut Input<'_>, sizes: &Sizes) -> Result<Self, Malformed> {
        let n = input.count()?;
        let limit = sizes.get(Table::Threads);
        within("threads of a block", n as u64, limit)?;
        let mut threads = Vec::with_capacity(n);
        let mut id = 0;
        for _ in 0..n {
            id = input.delta32(id)?;
            known("thread", id, limit)?;
            threads.push(ThreadId(id));
        }
        let base = input.number()?;
        to_ns(base)?;
        let n_columns = input.number()?;
        let seen = Seen {
            last: Last::at(base),
            ..Seen::default()
        };
        let mut sizes = *sizes;
        sizes.0[Table::Threads as usize] = n;
        Ok(Self {
            reader: SpanReader {
                threads: vec![seen; n],
                thread: 0,
                end: base,
            },
            threads,
            n_columns,
            sizes,
        })
    }
}

/// The first begin of a thread's spans and the last end.
type Bounds = (ThreadId, TimeNs, TimeNs);

/// What a section says beside its spans.
#[derive(Debug, Default)]
pub(crate) struct Section {
    bounds: Vec<Bounds>,
    weight: u64,
    n_unknown: u64,
}

/// What sections say together. Their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// By thread: the first begin of a span and the last end.
    pub(crate) bounds: Vec<Option<(TimeNs, TimeNs)>>,
    /// Of all spans, ns.
    weight: u64,
    /// Codes and columns of a newer wcprof.
    pub(crate) n_unknown: u64,
}

impl Summary {
    /// Adds what a section says.
    pub(crate) fn add(&mut self, section: Section) -> Result<(), Malformed> {
        for (thread, start, end) in section.bounds {
            let at = thread.0 as usize;
            if at >= self.bounds.len() {
                self.bounds.resize(at + 1, None);
            }
            let (first, last) = self.bounds[at].unwrap_or((start, end));
            self.bounds[at] = Some((first.min(start), last.max(end)));
        }
        self.n_unknown += section.n_unknown;
        self.weigh(section.weight)
    }

    fn weigh(&mut self, weight: u64) -> Result<(), Malformed> {
        add_weight(&mut self.weight, weight)
    }
}

#[inline]
fn add_weight(sum: &mut u64, weight: u64) -> Result<(), Malformed> {
    *sum = sum.checked_add(weight).ok_or(Malformed::WeightTooLarge)?;
    Ok(())
}

/// Reads a whole section, and hands over each span.
pub(crate) fn read_section<E: From<Malformed>>(
    input: &mut Input<'_>,
    sizes: &Sizes,
    mut each: impl FnMut(Span) -> Result<(), E>,
) -> Result<Section, E> {
    let Beginning {
        mut reader,
        threads,
        n_columns,
        sizes,
    } = Beginning::read(input, sizes)?;
    let mut section = Section::default();
    reader.read(input, &sizes, |span| {
        let thread = threads[span.thread.0 as usize];
        section.n_unknown += u64::from(matches!(span.state, ThreadState::Other(_)));
        add_weight(&mut section.weight, span.weight)?;
        each(Span { thread, ..span })
    })?;
    // Those of a newer wcprof, which add to what is known.
    for _ in N_COLUMNS as u64..n_columns {
        let len = input.number()?;
        input.bytes(len)?;
        section.n_unknown += 1;
    }
    let bounds = threads.into_iter().zip(reader.seen());
    let bounds = bounds.filter_map(|(thread, seen)| seen.map(|(start, end)| (thread, start, end)));
    section.bounds = bounds.collect();
    Ok(section)
}

impl SpanReader {
    /// By thread: the first begin of a span and the last end of one, if there was any.
    fn seen(&self) -> impl Iterator<Item = Option<(TimeNs, TimeNs)>> + '_ {
        self.threads.iter().map(|seen| {
            let times = (seen.first.checked_mul(NS_PER_US)?, seen.latest * NS_PER_US);
            Some((TimeNs(times.0), TimeNs(times.1)))
        })
    }

    /// Reads all spans of the section and hands over each.
    fn read<E: From<Malformed>>(
        &mut self,
        input: &mut Input<'_>,
        sizes: &Sizes,
        mut each: impl FnMut(Span) -> Result<(), E>,
    ) -> Result<(), E> {
        let (n, data, at, ends) = layout(input)?;
        let mut cursor = Cursor {
            at,
            thread: self.thread,
            end: self.end,
        };
        for _ in 0..n {
            let span = match self.quick(&mut cursor, data, &ends, sizes) {
                Some(span) => span,
                None => {
                    let (span, after) = self.slow(cursor, data, &ends, sizes)?;
                    cursor = after;
                    span
                }
            };
            each(span)?;
        }
        (self.thread, self.end) = (cursor.thread, cursor.end);
        let columns = columns(data, &cursor.at, &ends);
        Ok(columns.iter().try_for_each(Input::end)?)
    }

    /// The next span if it is as usual; else nothing has changed.
    #[inline(always)]
    fn quick(
        &mut self,
        cursor: &mut Cursor,
        data: &[u8],
        ends: &[usize; N_COLUMNS],
        sizes: &Sizes,
    ) -> Option<Span> {
        let mut at = cursor.at;
        let raw = Raw::take(&mut at, data, ends)?;
        let is = |flag: u8| raw.flags & flag != 0;
        let state = STATES[usize::from(raw.flags & STATE_MASK)];
        let thread = moved(cursor.thread.into(), raw.thread);
        let seen = self.threads.get_mut(usize::try_from(thread).ok()?)?;
        let last = &mut seen.last;

        let is_same = is(SAME_INTERVAL);
        let is_blocked = state == ThreadState::Blocked;
        let from = select_unpredictable(is_same, last.start, moved(last.end, raw.start));
        let to = select_unpredictable(is_same, last.end, moved(cursor.end, raw.end));
        let length = to.wrapping_sub(from);
        let left = select_unpredictable(is_same, last.left, length);
        let as_last = is_same & is_blocked & last.blocked;
        let guess = select_unpredictable(as_last, last.weight, left);
        // What the guess lacks; nothing if it is right.
        let half = u64::from(raw.weight >> 1);
        let weight = select_unpredictable(raw.weight & 1 != 0, half, guess.wrapping_sub(half));
        let wait = moved(last.wait.into(), raw.wait);
        let stack = moved(last.stack.into(), raw.stack);
        let is_usual = (from <= to)
            & (to <= MAX_TIME_NS / NS_PER_US)
            & (weight <= MAX_TIME_NS / NS_PER_US)
            & (thread < sizes.get(Table::Threads) as u64)
            & (!is(HAS_WAIT)
                | ((wait < sizes.get(Table::Waits) as u64) & (wait <= u32::MAX.into())))
            & (!is(HAS_STACK)
                | ((stack < sizes.get(Table::Stacks) as u64) & (stack <= u32::MAX.into())));
        if !is_usual {
            return None;
        }

        *last = Last {
            start: from,
            end: to,
            left: left.saturating_sub(weight),
            weight,
            stack: stack as u32,
            wait: wait as u32,
            blocked: is_blocked,
        };
        seen.first = seen.first.min(from);
        seen.latest = seen.latest.max(to);
        *cursor = Cursor {
            at,
            thread: thread as u32,
            end: to,
        };
        Some(Span {
            thread: ThreadId(thread as u32),
            start: TimeNs(from * NS_PER_US),
            end: TimeNs(to * NS_PER_US),
            weight: weight * NS_PER_US,
            n_samples: raw.n_samples,
            state,
            wait: is(HAS_WAIT).then_some(WaitId(wait as u32)),
            stack: is(HAS_STACK).then_some(StackId(stack as u32)),
        })
    }

    /// The next span, or what is wrong with it.
    #[cold]
    #[inline(never)]
    fn slow(
        &mut self,
        before: Cursor,
        data: &[u8],
        ends: &[usize; N_COLUMNS],
        sizes: &Sizes,
    ) -> Result<(Span, Cursor), Malformed> {
        let mut columns = columns(data, &before.at, ends);
        let [flags, thread, start, end, weight, n_samples, wait, stack] = &mut columns;
        let flags = flags.byte()?;
        let thread = thread.delta32(before.thread)?;
        known("thread", thread, sizes.get(Table::Threads))?;
        let state = STATES[usize::from(flags & STATE_MASK)];
        let seen = &mut self.threads[thread as usize];
        let last = &mut seen.last;
        let guess = if flags & SAME_INTERVAL != 0 {
            last.guess(state)
        } else {
            let from = match flags & NEXT_INTERVAL {
                0 => start.delta(last.end)?,
                _ => last.end,
            };
            let to = end.delta(before.end)?;
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
            known("wait", last.wait, sizes.get(Table::Waits))?;
        }
        if flags & HAS_STACK != 0 {
            last.stack = stack.delta32(last.stack)?;
            known("stack", last.stack, sizes.get(Table::Stacks))?;
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
        seen.first = seen.first.min(last.start);
        seen.latest = seen.latest.max(last.end);
        let end = last.end;
        let mut at = *ends;
        for (at, column) in at.iter_mut().zip(&columns) {
            *at -= column.0.len();
        }
        Ok((span, Cursor { at, thread, end }))
    }
}

/// The numbers of a span, as they are in the columns; 0 for those that are absent.
struct Raw {
    flags: u8,
    thread: u32,
    start: u32,
    end: u32,
    weight: u32,
    n_samples: u32,
    wait: u32,
    stack: u32,
}

impl Raw {
    /// Takes the numbers at these places of the columns; `None` when one of them is long, or a
    /// column ends.
    #[inline(always)]
    fn take(at: &mut [usize; N_COLUMNS], data: &[u8], ends: &[usize; N_COLUMNS]) -> Option<Self> {
        let &flags = data.get(at[0])?;
        at[0] += 1;
        let is = |flag: u8| flags & flag != 0;
        let mut unusual = at[0] > ends[0];
        // Nearly always one byte.
        let mut byte = |column: usize| {
            let &byte = data.get(at[column])?;
            at[column] += 1;
            unusual |= (byte >= 0x80) | (at[column] > ends[column]);
            Some(u32::from(byte))
        };
        let thread = byte(1)?;
        let n_samples = byte(5)?;
        let mut next = |column: usize, is_there: bool| {
            let there = u32::from(is_there).wrapping_neg();
            let bytes = data.get(at[column]..)?.first_chunk()?;
            let (number, n_bytes) = short(u32::from_le_bytes(*bytes));
            at[column] += (n_bytes & there) as usize;
            unusual |= (at[column] > ends[column]) | ((n_bytes & there) == 5);
            Some(number & there)
        };
        // These are mostly absent.
        let start = match is(SAME_INTERVAL | NEXT_INTERVAL) {
            true => 0,
            false => next(2, true)?,
        };
        let wait = match is(HAS_WAIT) {
            true => next(6, true)?,
            false => 0,
        };
        // Whether these are there cannot be foreseen: no branch.
        let raw = Self {
            flags,
            thread,
            start,
            end: next(3, !is(SAME_INTERVAL))?,
            weight: next(4, !is(WEIGHT_AS_GUESSED))?,
            n_samples,
            wait,
            stack: next(7, is(HAS_STACK))?,
        };
        (!unusual).then_some(raw)
    }
}

/// The number that four bytes begin with, and how many bytes it has. 5 if it has more than these.
#[inline(always)]
fn short(word: u32) -> (u32, u32) {
    let last_bytes = !word & 0x8080_8080;
    // 32 without a last byte.
    let n_bytes = last_bytes.trailing_zeros() / 8 + 1;
    let bits = word & (last_bytes ^ last_bytes.wrapping_sub(1));
    let number =
        bits & 0x7f | (bits & 0x7f00) >> 1 | (bits & 0x7f_0000) >> 2 | (bits & 0x7f00_0000) >> 3;
    (number, n_bytes)
}

/// How many spans a section has, and where in it each column begins and ends.
type Layout<'a> = (usize, &'a [u8], [usize; N_COLUMNS], [usize; N_COLUMNS]);

fn layout<'a>(input: &mut Input<'a>) -> Result<Layout<'a>, Malformed> {
    let n = input.count()?;
    let data = input.0;
    let (mut at, mut ends) = ([0; N_COLUMNS], [0; N_COLUMNS]);
    for (at, end) in at.iter_mut().zip(&mut ends) {
        let len = input.number()?;
        *at = data.len() - input.0.len();
        input.bytes(len)?;
        *end = data.len() - input.0.len();
    }
    Ok((n, data, at, ends))
}

/// What is left of each column.
fn columns<'a>(
    data: &'a [u8],
    at: &[usize; N_COLUMNS],
    ends: &[usize; N_COLUMNS],
) -> [Input<'a>; N_COLUMNS] {
    std::array::from_fn(|i| Input(data.get(at[i]..ends[i]).unwrap_or_default()))
}

/// A number changed by a zigzag difference.
#[inline(always)]
fn moved(from: u64, zigzag: u32) -> u64 {
    from.wrapping_add(u64::from(zigzag >> 1) ^ u64::from(zigzag & 1).wrapping_neg())
}

fn read_weight(input: &mut Input<'_>, guess: u64) -> Result<u64, Malformed> {
    let n = input.number()?;
    match n & 1 {
        1 => Ok(n >> 1),
        _ => guess.checked_sub(n >> 1).ok_or(Malformed::NumberTooLarge),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::spans::SpanWriter;

    const SIZES: Sizes = Sizes([0, 0, 5, 0, 0, 1 << 30, 300, 0]);

    type Read = (Vec<Span>, Result<Vec<SpanReader>, Malformed>);

    /// Reads sections, with or without the quick way.
    fn read(sections: &[Vec<u8>], quickly: bool) -> Read {
        let mut spans = Vec::new();
        let readers = sections.iter().map(|section| {
            let input = &mut Input(section);
            let mut begun = Beginning::read(input, &SIZES)?;
            let reader = &mut begun.reader;
            match quickly {
                true => reader.read(input, &begun.sizes, |span| {
                    spans.push(span);
                    Ok::<_, Malformed>(())
                })?,
                false => read_slowly(reader, input, &begun.sizes, &mut spans)?,
            }
            input.end()?;
            Ok(begun.reader)
        });
        let readers = readers.collect();
        (spans, readers)
    }

    fn read_slowly(
        reader: &mut SpanReader,
        input: &mut Input<'_>,
        sizes: &Sizes,
        spans: &mut Vec<Span>,
    ) -> Result<(), Malformed> {
        let (n, data, at, ends) = layout(input)?;
        let (thread, end) = (reader.thread, reader.end);
        let mut cursor = Cursor { at, thread, end };
        for _ in 0..n {
            let (span, after) = reader.slow(cursor, data, &ends, sizes)?;
            spans.push(span);
            cursor = after;
        }
        (reader.thread, reader.end) = (cursor.thread, cursor.end);
        let columns = columns(data, &cursor.at, &ends);
        columns.iter().try_for_each(Input::end)
    }

    fn same(sections: &[Vec<u8>]) -> Result<usize, TestCaseError> {
        let (quick, slow) = (read(sections, true), read(sections, false));
        prop_assert_eq!(&quick.0, &slow.0);
        match (quick.1, slow.1) {
            (Ok(quick), Ok(slow)) => {
                for (quick, slow) in quick.iter().zip(&slow) {
                    prop_assert_eq!((quick.thread, quick.end), (slow.thread, slow.end));
                    prop_assert_eq!(&quick.threads, &slow.threads);
                }
            }
            (quick, slow) => prop_assert_eq!(quick.err(), slow.err()),
        }
        Ok(quick.0.len())
    }

    /// Numbers of all lengths, short ones more often.
    fn number(bits: u32) -> impl Strategy<Value = u64> {
        (0..=bits, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1))
    }

    fn span() -> impl Strategy<Value = (Span, bool)> {
        let ids = (
            0..5_u32,
            prop::option::of(0..300_u32),
            prop::option::of(number(29)),
        );
        let times = (number(40), number(30), number(35), number(32));
        (ids, times, 0..8_u8, 0..4_u8).prop_map(|((thread, wait, stack), times, code, again)| {
            let span = Span {
                thread: ThreadId(thread),
                start: TimeNs(times.0),
                end: TimeNs(times.0 + times.1),
                weight: times.2,
                n_samples: times.3 as u32,
                state: STATES[usize::from(code)],
                wait: wait.map(WaitId),
                stack: stack.map(|id| StackId(id as u32)),
            };
            (span, again > 0)
        })
    }

    /// Sections as a writer makes them; of a thread, three intervals in four follow or repeat the one
    /// before.
    fn sections(spans: &[(Span, bool)], n: usize) -> Vec<Vec<u8>> {
        let mut writer = SpanWriter::default();
        let mut last = [(TimeNs(0), TimeNs(0)); 5];
        let of_part = |part: &[(Span, bool)]| {
            for (span, follows) in part {
                let last = &mut last[span.thread.0 as usize];
                let (start, end) = match (follows, span.n_samples % 2) {
                    (false, _) => (span.start, span.end),
                    (true, 0) => *last,
                    (true, _) => (
                        last.1,
                        TimeNs(last.1.0 + (span.end.0 - span.start.0) % 20_000_000),
                    ),
                };
                *last = (start, end);
                let span = Span {
                    start,
                    end,
                    ..span.clone()
                };
                writer.put(&span);
            }
            let mut section = Vec::new();
            writer.take_into(&mut section);
            section
        };
        spans.chunks(n).map(of_part).collect()
    }

    proptest! {
        /// Check that the quick way reads what the slow one reads.
        #[test]
        fn quick_as_slow(spans in prop::collection::vec(span(), 1..200), n in 1..100_usize) {
            prop_assert_eq!(same(&sections(&spans, n))?, spans.len());
        }

        /// Check that it also finds the same spans before the same error in damaged columns.
        #[test]
        fn same_errors(
            spans in prop::collection::vec(span(), 1..60),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut sections = sections(&spans, 40);
            for (at, byte) in damage {
                let n = sections[0].len();
                sections[0][at.index(n)] = byte;
            }
            same(&sections)?;
        }
    }

    /// Check that what is kept of a thread is one line of the cache.
    #[test]
    fn size() {
        assert_eq!(size_of::<Seen>(), 64);
    }
}
