//! Folded stacks: `root;...;leaf WEIGHT`, a stack a line.
//!
//! When the first frame of every line is `name/TID` (what `wcprof report --format folded` writes), it is the
//! thread; else all is one thread. States stay unknown, and time has no order. Lines that begin with `#` are comments. A file with two weights a
//! line is a differential: one column of it is imported.

use std::iter;

use indexmap::IndexMap;
use indexmap::map::Entry;
use wcprof_trace::model::{Span, StackId, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::{ImportError, Result, within};
use crate::limits;
use crate::options::Options;

/// What a unit of weight stands for when nobody says: what wcprof writes.
const UNIT_NS: u64 = 1000;

/// What a line counts, in units: seconds with a fraction are as common as samples.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Weight {
    whole: u64,
    millionths: u32,
}

impl Weight {
    /// `None` for what is no decimal number, negative ones among them.
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let six = fraction.bytes().chain(iter::repeat(b'0')).take(6);
        Some(Self {
            whole: match whole {
                "" => 0,
                whole => whole.parse().ok()?,
            },
            millionths: six.fold(0, |n, digit| 10 * n + u32::from(digit - b'0')),
        })
    }

    /// In ns, of units of so many.
    fn ns(self, unit: u64) -> u64 {
        let fraction = u128::from(self.millionths) * u128::from(unit) / 1_000_000;
        let whole = self.whole.saturating_mul(unit);
        whole.saturating_add(u64::try_from(fraction).unwrap_or(u64::MAX))
    }
}

/// A line without its weight, and the weight. `None` when there is none.
pub(crate) fn split_weight(line: &str) -> Option<(&str, Weight)> {
    let (stack, weight) = line.trim_end().rsplit_once(' ')?;
    let weight = Weight::parse(weight)?;
    (!stack.trim().is_empty()).then_some((stack, weight))
}

/// A line of two weights without them, and the one in a column, 1 or 2.
fn split_column(line: &str, column: u8) -> Option<(&str, Weight)> {
    let (rest, second) = split_weight(line)?;
    let (stack, first) = split_weight(rest)?;
    Some((stack, if column == 1 { first } else { second }))
}

/// The thread that a first frame names.
fn thread_of(frame: &str) -> Option<(&str, i32)> {
    let (name, tid) = frame.rsplit_once('/')?;
    let is_number = !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit());
    let tid = tid.parse().ok().filter(|tid| *tid > 0 && is_number)?;
    Some((name, tid))
}

/// Whether all lines that have a weight have two.
fn is_differential<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let mut weighted = lines.filter(|line| split_weight(line).is_some()).peekable();
    weighted.peek().is_some() && weighted.all(|line| split_column(line, 1).is_some())
}

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace> {
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let mut builder = Builder::new("folded stacks", options);
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if options.column.is_none() && is_differential(lines.clone()) {
        return Err(ImportError::Foreign {
            what: "a differential: two weights a line, as difffolded.pl and inferno-diff-folded write",
            advice: "import it with `--column 1` and with `--column 2`, and compare the two traces with `wcprof diff`",
        });
    }
    let split = |line| match options.column {
        Some(column) => split_column(line, column),
        None => split_weight(line),
    };
    let n_bad = lines.clone().filter(|line| split(line).is_none()).count();
    let good = lines.filter_map(split);
    let good = good.map(|(stack, weight)| (stack, weight.ns(unit)));
    let good = good.filter(|(_, ns)| *ns > 0);
    let first_frame = |stack: &str| Some(thread_of(stack.split_once(';')?.0)?.1);
    let is_by_thread = good.clone().all(|(stack, _)| first_frame(stack).is_some());
    let process = builder.process(Pid(0), "imported")?;
    let mut threads: IndexMap<(&str, i32), u64> = IndexMap::new();
    // Its time is unknown, so that a stack of a thread has one span.
    let mut spans: IndexMap<(ThreadId, StackId), Span> = IndexMap::new();
    for (stack, weight) in good {
        let (key, frames) = match stack.split_once(';').filter(|_| is_by_thread) {
            Some((first, rest)) => (thread_of(first).unwrap_or((first, 1)), rest),
            None => (("imported", 1), stack),
        };
        let entry = threads.entry(key);
        let thread = ThreadId(entry.index() as u32);
        if matches!(entry, Entry::Vacant(_)) {
            builder.thread(process, Tid(key.1), key.0)?;
        }
        let frames = frames.split(';').map(|name| builder.named(name));
        let frames = frames.collect::<Result<Vec<_>, _>>()?;
        let stack = builder.stack(frames, StackEnd::Root)?;
        let span = span(thread, stack, weight, unit);
        let total = entry.or_default();
        *total = total.saturating_add(span.weight);
        let limit = limits::MAX_TIME_NS as usize;
        within(*total as usize, limit, "the sum of all weights, ns,")?;
        let known = spans.entry((thread, stack));
        match known {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.weight = known.weight.saturating_add(span.weight);
                known.n_samples = known.n_samples.saturating_add(span.n_samples);
            }
            Entry::Vacant(new) => drop(new.insert(span)),
        }
        within(spans.len(), limits::MAX_SPANS, "the number of stacks")?;
    }
    if spans.is_empty() {
        return Err(ImportError::NoSamples(format!(
            " ({n_bad} lines are not `root;...;leaf WEIGHT`)"
        )));
    }
    // Its time is unknown: each weight lies somewhere in its thread's whole time.
    let totals: Vec<u64> = threads.into_values().collect();
    for mut span in spans.into_values() {
        span.end = TimeNs(totals[span.thread.0 as usize]);
        builder.span(span)?;
    }
    let duration = totals.iter().copied().max().unwrap_or_default();
    for (thread, total) in builder.trace.tables.threads.iter_mut().zip(totals) {
        thread.end = TimeNs(total);
    }
    builder.note(format!(
        "states and times are unknown; one unit of weight counts as {} us",
        unit as f64 / 1000.0
    ));
    let bad = "lines were not understood and are left out";
    builder.note_counts([(n_bad as u64, bad)]);
    Ok(builder.finish(duration))
}

/// A span of a weight in ns, made of units of so many, whose end is not known yet.
fn span(thread: ThreadId, stack: StackId, weight: u64, unit: u64) -> Span {
    let n_samples = (weight / unit.max(1)).max(1);
    Span {
        thread,
        start: TimeNs(0),
        end: TimeNs(0),
        weight,
        n_samples: u32::try_from(n_samples).unwrap_or(u32::MAX),
        state: ThreadState::Unknown,
        wait: None,
        stack: Some(stack),
    }
}
