//! Folded stacks: `root;...;leaf WEIGHT`, a stack a line.
//!
//! When the first frame of every line is `name/TID` (what `wcprof report --format folded` writes), it is the
//! thread; else all is one thread. States stay unknown, and time has no order.

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

/// A line without its weight, and the weight. `None` when there is none.
pub(crate) fn split_weight(line: &str) -> Option<(&str, u64)> {
    let (stack, weight) = line.trim_end().rsplit_once(' ')?;
    let whole = weight.split('.').next().unwrap_or(weight);
    let is_number = weight.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if stack.trim().is_empty() || !is_number {
        return None;
    }
    Some((stack, whole.parse().ok()?))
}

/// The thread that a first frame names.
fn thread_of(frame: &str) -> Option<(&str, i32)> {
    let (name, tid) = frame.rsplit_once('/')?;
    let is_number = !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit());
    let tid = tid.parse().ok().filter(|tid| *tid > 0 && is_number)?;
    Some((name, tid))
}

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace> {
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let mut builder = Builder::new("folded stacks", options);
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_bad = |line: &&str| split_weight(line).is_none();
    let n_bad = lines.clone().filter(is_bad).count();
    let good = lines.filter_map(split_weight).filter(|(_, n)| *n > 0);
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

/// A span of that weight, in units of `unit` ns, whose end is not known yet.
fn span(thread: ThreadId, stack: StackId, weight: u64, unit: u64) -> Span {
    Span {
        thread,
        start: TimeNs(0),
        end: TimeNs(0),
        weight: weight.saturating_mul(unit),
        n_samples: u32::try_from(weight).unwrap_or(u32::MAX),
        state: ThreadState::Unknown,
        wait: None,
        stack: Some(stack),
    }
}
