//! Readings of counters to what each process's counters grew by in the part of a recording that a profile is about.

use std::collections::{BTreeMap, HashMap};

use wcprof_trace::model::{CounterFacts, CounterId, CounterReading, ProcessId};
use wcprof_types::CounterValue;

use crate::slices::{Parts, Slices, TimeAxis};

/// What a process counted of its own work.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessCounters {
    /// By name: what was added in the time below.
    pub grown: BTreeMap<String, CounterValue>,
    /// By name: how many were added, by slice of the profile.
    pub over_time: BTreeMap<String, Slices>,
    /// The time of the profile that lies between its readings, ns.
    pub covered_ns: u64,
}

/// The same of each process that has readings. `parts` are the times at which each process
/// was recorded. What grew between two readings is spread evenly over the time between them; from one recording
/// to the next it is left out.
pub(crate) fn growth(
    facts: &CounterFacts,
    parts: &[Parts],
    axis: &TimeAxis,
) -> HashMap<ProcessId, ProcessCounters> {
    let (from, to) = (axis.start.0, axis.end.0);
    let mut all: HashMap<ProcessId, ProcessCounters> = HashMap::new();
    let mut last: HashMap<ProcessId, u64> = HashMap::new();
    let mut values: HashMap<(ProcessId, CounterId), CounterValue> = HashMap::new();
    for reading in &facts.readings {
        let CounterReading { process, time, .. } = reading;
        let Some(parts) = parts.get(process.0 as usize) else {
            continue;
        };
        // Nothing is known of what was before the first one.
        let before = last.insert(*process, time.0).unwrap_or(time.0);
        let length = time.0.saturating_sub(before);
        let is_one = parts.len() < 2 || parts.overlap(before, time.0) == length;
        let (start, end) = (before.clamp(from, to), time.0.clamp(from, to));
        let inside = match is_one {
            true => parts.overlap(start, end),
            false => 0,
        };
        let known = all.entry(*process).or_default();
        known.covered_ns = known.covered_ns.saturating_add(inside);
        for (id, value) in &reading.values {
            let earlier = values.insert((*process, *id), *value);
            let Some(name) = facts.names.get(id.0 as usize).filter(|_| inside > 0) else {
                continue;
            };
            let grown = value.since(earlier.unwrap_or_default());
            let part = |n: u64| (u128::from(n) * u128::from(inside) / u128::from(length)) as u64;
            let grown = CounterValue {
                count: part(grown.count),
                time_ns: part(grown.time_ns),
            };
            let sum = known.grown.entry(name.name.clone()).or_default();
            *sum = sum.plus(grown);
            let slices = known.over_time.entry(name.name.clone()).or_default();
            slices.spread(axis, (start - from, end - from), grown.count as f64);
        }
    }
    all
}
