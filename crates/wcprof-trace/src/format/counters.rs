//! What processes counted of their own work: names, and readings as differences from the process's last one in
//! the block.

use std::collections::HashMap;

use wcprof_types::{CounterName, CounterValue};

use super::codec::{Codec, Entries, Sizes, Table, write_entry};
use super::wire::{Input, unknown, within};
use crate::error::Malformed;
use crate::limits::{MAX_COUNTER_VALUES, MAX_COUNTERS};
use crate::model::{CounterFacts, CounterId, CounterReading, ProcessId};

type Values = HashMap<(ProcessId, CounterId), CounterValue>;

/// What readings refer to.
#[derive(Debug, Default)]
pub(crate) struct Before {
    n_values: usize,
    /// Last values, which a writer leaves out when they are the same.
    known: Values,
    /// Those that others are differences from.
    last: Values,
}

impl Before {
    /// Another block begins.
    pub(crate) fn restart(&mut self) {
        self.last.clear();
    }
}

pub(crate) fn put_name(
    out: &mut Vec<u8>,
    name: &CounterName,
    sizes: &mut Sizes,
) -> Result<CounterId, Malformed> {
    let id = sizes.get(Table::Counters);
    Table::Counters.check_len(id + 1)?;
    write_entry(out, &Sizes::default(), |c| {
        c.byte(&mut 0)?;
        fields_of_name(c, &mut name.clone())
    })?;
    sizes.add(Table::Counters);
    // Limits are far below 2^32.
    Ok(CounterId(id as u32))
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
        sizes.check(Table::Counters, Some(id.0))?;
        let last = before.known.get(&(reading.process, *id));
        if last.copied().unwrap_or_default() != *value {
            new.values.push((*id, *value));
        }
    }
    let n_values = before.n_values + new.values.len() + 1;
    if n_values > MAX_COUNTER_VALUES {
        return Ok(());
    }
    write_entry(out, sizes, |c| {
        c.byte(&mut 1)?;
        fields_of_reading(c, &mut new, before)
    })?;
    let values = new.values.into_iter();
    before
        .known
        .extend(values.map(|(id, value)| ((new.process, id), value)));
    Ok(())
}

/// Reads a whole section.
pub(crate) fn read(
    input: &mut Input<'_>,
    entries: &mut Entries,
    mut sizes: Sizes,
    facts: &mut CounterFacts,
    before: &mut Before,
) -> Result<(), Malformed> {
    before.restart();
    while !input.is_empty() {
        entries.read(input, |input| {
            match input.byte()? {
                0 => {
                    let mut name = CounterName::default();
                    fields_of_name(&mut Codec::reader(input, sizes), &mut name)?;
                    Table::Counters.check_len(facts.names.len() + 1)?;
                    sizes.add(Table::Counters);
                    facts.names.push(name);
                }
                1 => {
                    let mut reading = CounterReading::default();
                    fields_of_reading(&mut Codec::reader(input, sizes), &mut reading, before)?;
                    facts.readings.push(reading);
                }
                code => return Err(unknown("fact about counters", code)),
            }
            Ok(())
        })?;
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
    let last = &mut before.last;
    let value = |c: &mut Codec<'_, '_>, (id, value): &mut (CounterId, CounterValue)| {
        c.id(Table::Counters, &mut id.0)?;
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
