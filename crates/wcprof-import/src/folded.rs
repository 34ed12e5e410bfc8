//! Folded stacks: `root;...;leaf WEIGHT`, a stack a line.
//!
//! When the first frame of every line is `name/TID` (what `wcprof report --format folded` writes), it is the
//! thread; else all is one thread. States stay unknown, and time has no order.

use std::collections::HashMap;

use wcprof_trace::model::{Span, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::{Options, limits};

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

pub(crate) fn import(text: &str, options: &Options) -> Result<Trace, ImportError> {
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let mut builder = Builder::new("folded stacks", options);
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let good = || lines().filter_map(split_weight).filter(|(_, n)| *n > 0);
    let n_bad = lines().filter(|line| split_weight(line).is_none()).count();
    let is_by_thread = good().all(|(stack, _)| {
        let first = stack.split(';').next().unwrap_or_default();
        thread_of(first).is_some() && stack.contains(';')
    });
    let process = builder.process(Pid(0), "imported")?;
    let mut threads: HashMap<(&str, i32), ThreadId> = HashMap::new();
    let mut pending: Vec<(ThreadId, Span)> = Vec::new();
    let mut totals: Vec<u64> = Vec::new();
    for (stack, weight) in good() {
        let (key, frames) = match stack.split_once(';').filter(|_| is_by_thread) {
            Some((first, rest)) => (thread_of(first).unwrap_or((first, 1)), rest),
            None => (("imported", 1), stack),
        };
        let thread = match threads.get(&key) {
            Some(&id) => id,
            None => {
                let id = builder.thread(process, Tid(key.1), key.0)?;
                threads.insert(key, id);
                totals.push(0);
                id
            }
        };
        let mut ids = Vec::new();
        for name in frames.split(';') {
            ids.push(builder.named(name)?);
        }
        let stack = builder.stack(ids, StackEnd::Root)?;
        let too_long = || ImportError::TooLarge {
            what: "the sum of all weights, ns,",
            limit: limits::MAX_TIME_NS,
        };
        let ns = weight.checked_mul(unit).ok_or_else(too_long)?;
        if let Some(total) = totals.get_mut(thread.0 as usize) {
            *total = total
                .checked_add(ns)
                .filter(|t| *t <= limits::MAX_TIME_NS)
                .ok_or_else(too_long)?;
        }
        pending.push((
            thread,
            Span {
                thread,
                start: TimeNs(0),
                end: TimeNs(0),
                weight: ns,
                n_samples: u32::try_from(weight).unwrap_or(u32::MAX),
                state: ThreadState::Unknown,
                wait: None,
                stack: Some(stack),
            },
        ));
        if pending.len() > limits::MAX_SPANS {
            return Err(ImportError::TooLarge {
                what: "the number of stacks",
                limit: limits::MAX_SPANS as u64,
            });
        }
    }
    if pending.is_empty() {
        return Err(ImportError::NoSamples(format!(
            " ({n_bad} lines are not `root;...;leaf WEIGHT`)"
        )));
    }
    // When is unknown: each weight lies somewhere in its thread's whole time.
    for (thread, mut span) in pending {
        span.end = TimeNs(totals.get(thread.0 as usize).copied().unwrap_or_default());
        builder.span(span)?;
    }
    let duration = totals.iter().copied().max().unwrap_or_default();
    for (thread, total) in builder.trace.tables.threads.iter_mut().zip(&totals) {
        thread.end = TimeNs(*total);
    }
    builder.note(format!(
        "states and times are unknown; one unit of weight counts as {} us",
        unit as f64 / 1000.0
    ));
    if n_bad > 0 {
        builder.note(format!(
            "{n_bad} lines were not understood and are left out"
        ));
    }
    Ok(builder.finish(duration))
}
