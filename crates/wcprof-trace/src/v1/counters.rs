//! What processes counted of their own work: names, and readings as differences from the process's last one.

use std::collections::HashMap;

use wcprof_types::{CounterName, CounterValue};

use super::codec::{Codec, Sizes, Table, write};
use super::wire::{Input, known, unknown, within};
use crate::error::Malformed;
use crate::limits::{MAX_COUNTER_VALUES, MAX_COUNTERS};
use crate::model::{CounterFacts, CounterId, CounterReading, ProcessId};

/// What readings refer to, in all sections of a file.
#[derive(Debug, Default)]
pub(crate) struct Before {
    n_names: usize,
    n_values: usize,
    last: HashMap<(ProcessId, CounterId), CounterValue>,
}

pub(crate) fn put_name(
    out: &mut Vec<u8>,
    name: &CounterName,
    before: &mut Before,
) -> Result<CounterId, Malformed> {
    within("counters", before.n_names as u64 + 1, MAX_COUNTERS)?;
    write(out, &Sizes::default(), |c| {
        c.byte(&mut 0)?;
        fields_of_name(c, &mut name.clone())
    })?;
    before.n_names += 1;
    // Limits are far below 2^32.
    Ok(CounterId(before.n_names as u32 - 1))
}

/// Writes what has changed; a reading beyond what a trace holds is left out.
pub(crate) fn put_reading(
    out: &mut Vec<u8>,
    sizes: &Sizes,
    reading: &CounterReading,
    before: &mut Before,
) -> Result<(), Malformed> {
    let mut new = CounterReading {
        values: Vec::new(),
        ..*reading
    };
    for (id, value) in &reading.values {
        known("counter", id.0, before.n_names)?;
        let last = before.last.get(&(reading.process, *id));
        if last.copied().unwrap_or_default() != *value {
            new.values.push((*id, *value));
        }
    }
    let n_values = before.n_values + new.values.len() + 1;
    if n_values > MAX_COUNTER_VALUES {
        return Ok(());
    }
    write(out, sizes, |c| {
        c.byte(&mut 1)?;
        fields_of_reading(c, &mut new, before)
    })
}

/// Reads a whole section.
pub(crate) fn read(
    input: &mut Input<'_>,
    sizes: Sizes,
    facts: &mut CounterFacts,
    before: &mut Before,
) -> Result<(), Malformed> {
    while !input.is_empty() {
        match input.byte()? {
            0 => {
                let mut name = CounterName::default();
                fields_of_name(&mut Codec::reader(input, sizes), &mut name)?;
                within("counters", before.n_names as u64 + 1, MAX_COUNTERS)?;
                before.n_names += 1;
                facts.names.push(name);
            }
            1 => {
                let mut reading = CounterReading::default();
                fields_of_reading(&mut Codec::reader(input, sizes), &mut reading, before)?;
                facts.readings.push(reading);
            }
            code => return Err(unknown("fact about counters", code)),
        }
    }
    Ok(())
}

fn fields_of_name(c: &mut Codec<'_, '_>, name: &mut CounterName) -> Result<(), Malformed> {
    c.flag(&mut name.timed)?;
    c.string(&mut name.name)
}

fn fields_of_reading(
    c: &mut Codec<'_, '_>,
    reading: &mut CounterReading,
    before: &mut Before,
) -> Result<(), Malformed> {
    c.id(Table::Processes, &mut reading.process.0)?;
    c.time(&mut reading.time)?;
    let process = reading.process;
    let (n_names, last) = (before.n_names, &mut before.last);
    let value = |c: &mut Codec<'_, '_>, (id, value): &mut (CounterId, CounterValue)| {
        c.number32(&mut id.0)?;
        known("counter", id.0, n_names)?;
        let last = last.entry((process, *id)).or_default();
        c.delta(&mut value.count, last.count)?;
        c.delta(&mut value.time_ns, last.time_ns)?;
        *last = *value;
        Ok(())
    };
    c.items("counters", &mut reading.values, MAX_COUNTERS, value)?;
    before.n_values += reading.values.len() + 1;
    let n_values = before.n_values as u64;
    within("values of counters", n_values, MAX_COUNTER_VALUES)
}
