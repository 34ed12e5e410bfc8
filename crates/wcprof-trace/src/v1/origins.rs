//! Ends of processes, and the recordings that a merged trace was made of.

use std::collections::BTreeMap;

use super::wire::{Input, put, put_str, within};
use crate::error::Malformed;
use crate::limits::MAX_SOURCES;
use crate::model::{ProcessEnd, ProcessId, Source};

pub(crate) fn put_process_end(out: &mut Vec<u8>, process: ProcessId, end: &ProcessEnd) {
    put(out, process.0.into());
    put(out, end.time.0);
    put_str(out, &end.reason);
}

/// Reads a whole section of ends.
pub(crate) fn process_ends(
    input: &mut Input<'_>,
    n_processes: usize,
    ends: &mut BTreeMap<ProcessId, ProcessEnd>,
) -> Result<(), Malformed> {
    while !input.is_empty() {
        let id = ProcessId(input.id("process", n_processes)?);
        let end = ProcessEnd {
            time: input.time()?,
            reason: input.string()?,
        };
        ends.insert(id, end);
    }
    Ok(())
}

pub(crate) fn put_source(out: &mut Vec<u8>, source: &Source) {
    put_str(out, &source.host);
    put_str(out, &source.engine);
    put_str(out, &source.kernel);
    for n in [
        source.n_cpus.into(),
        source.rate_hz.into(),
        source.started_unix_ns,
        source.start.0,
        source.duration.0,
        source.n_processes.into(),
    ] {
        put(out, n);
    }
}

/// Reads a whole section of sources.
pub(crate) fn sources(input: &mut Input<'_>, sources: &mut Vec<Source>) -> Result<(), Malformed> {
    while !input.is_empty() {
        within("sources", sources.len() as u64 + 1, MAX_SOURCES)?;
        sources.push(Source {
            host: input.string()?,
            engine: input.string()?,
            kernel: input.string()?,
            n_cpus: input.number32()?,
            rate_hz: input.number32()?,
            started_unix_ns: input.number()?,
            start: input.time()?,
            duration: input.time()?,
            n_processes: input.number32()?,
        });
    }
    Ok(())
}
