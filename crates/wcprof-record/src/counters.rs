//! What a process says that it counted to a reading of the trace.

use std::collections::HashMap;

use wcprof_trace::limits::MAX_COUNTERS;
use wcprof_trace::model::{CounterId, CounterReading, ProcessId};
use wcprof_trace::{TraceError, TraceSink};
use wcprof_types::{CounterName, CounterValue, TimeNs};

/// Names that have an id: a process that says other ones all the time does not fill the trace.
#[derive(Debug, Default)]
pub(crate) struct CounterIds(HashMap<CounterName, CounterId>);

impl CounterIds {
    /// Adds a reading to a trace, without the counters that find no room.
    pub(crate) fn add(
        &mut self,
        (process, time): (ProcessId, TimeNs),
        counted: &[(CounterName, CounterValue)],
        writer: &mut impl TraceSink,
    ) -> Result<(), TraceError> {
        let mut values = Vec::with_capacity(counted.len());
        for (name, value) in counted {
            let id = match self.0.get(name) {
                Some(id) => *id,
                None if self.0.len() >= MAX_COUNTERS => continue,
                None => {
                    let id = writer.intern_counter(name)?;
                    self.0.insert(name.clone(), id);
                    id
                }
            };
            values.push((id, *value));
        }
        writer.counters(&CounterReading {
            process,
            time,
            values,
        })
    }
}
