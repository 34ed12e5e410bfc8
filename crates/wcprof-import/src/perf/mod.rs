//! `perf.data`: samples of running threads, and time off CPU from `sched:sched_switch`,
//! `PERF_RECORD_SWITCH` or `perf record --off-cpu`.
//!
//! A sample of a clock weighs its period. One of another event (cycles) weighs in proportion to its
//! period, so that shares are those of `perf report`, and all of them together what the sampling
//! frequency makes of their number. Time off CPU goes from the switch to the next sign of the thread.

mod dwarf;
mod events;
mod maps;
mod preflight;
mod sound;
mod threads;

use std::io::{BufReader, Read, Seek, SeekFrom};

use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFile, PerfFileReader, PerfFileRecord};
use wcprof_trace::model::Trace;

use crate::builder::Builder;
use crate::error::ImportError;
use crate::{Options, limits};
use events::{Event, Kind};
use threads::Recording;

pub(crate) fn import<R: Read + Seek>(
    mut source: R,
    options: &Options,
) -> Result<Trace, ImportError> {
    preflight::check(&mut source)?;
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    let parsed = PerfFileReader::parse_file(BufReader::new(source));
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = parsed.map_err(|e| ImportError::Perf(e.to_string()))?;
    let mut builder = Builder::new("perf.data", options);
    describe(&mut builder, &perf_file);
    let events: Vec<Event> = perf_file
        .event_attributes()
        .iter()
        .map(Event::new)
        .collect();
    let build_ids = perf_file.build_ids().unwrap_or_default();
    let mut recording = Recording::new(builder, events, build_ids);
    let (mut n_records, mut n_bad) = (0_u64, 0_u64);
    let damage = loop {
        let record = match record_iter.next_record(&mut perf_file) {
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => (attr_index, record),
            Ok(Some(PerfFileRecord::UserRecord(_))) => continue,
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        };
        n_records += 1;
        let (attr, raw) = record;
        if !sound::is_sound(&raw) {
            n_bad += 1;
            continue;
        }
        let common = raw.common_data().ok();
        match raw.parse() {
            Ok(EventRecord::Sample(sample)) => recording.sample(attr, &sample)?,
            Ok(EventRecord::Comm(comm)) => {
                let time = common.as_ref().and_then(|c| c.timestamp);
                let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
                recording.comm(comm.pid, comm.tid, &name, comm.is_execve, time)?;
            }
            Ok(EventRecord::Fork(fork)) => {
                recording.fork(fork.pid, fork.tid, fork.ppid, fork.ptid)?;
            }
            Ok(EventRecord::Exit(exit)) => recording.exit(exit.tid, exit.timestamp)?,
            Ok(EventRecord::Mmap(m)) if m.is_executable => {
                let path = m.path.as_slice();
                recording.map(
                    m.pid,
                    m.address,
                    m.length,
                    m.page_offset,
                    &path,
                    None,
                    m.cpu_mode,
                )?;
            }
            Ok(EventRecord::Mmap2(m)) if m.protection & 4 != 0 => {
                let path = m.path.as_slice();
                let id = match &m.file_id {
                    linux_perf_data::linux_perf_event_reader::Mmap2FileId::BuildId(id) => Some(id),
                    _ => None,
                };
                let id = id.map(Vec::as_slice);
                recording.map(
                    m.pid,
                    m.address,
                    m.length,
                    m.page_offset,
                    &path,
                    id,
                    m.cpu_mode,
                )?;
            }
            Ok(EventRecord::Lost(lost)) => {
                recording.n_lost = recording.n_lost.saturating_add(lost.count);
            }
            Ok(EventRecord::ContextSwitch(switch)) => {
                if let Some(c) = common
                    && let (Some(tid), Some(time)) = (c.tid, c.timestamp)
                {
                    recording.switch(tid, time, &switch)?;
                }
            }
            Ok(_) => {}
            Err(_) => n_bad += 1,
        }
    };
    if let Some(error) = damage {
        if recording.n_samples == 0 {
            return Err(ImportError::Perf(error));
        }
        recording.builder.note(format!(
            "the file is damaged after {n_records} records; the rest is missing: {error}"
        ));
    }
    if n_bad > 0 {
        recording
            .builder
            .note(format!("{n_bad} records were not understood"));
    }
    recording.finish()
}

/// What the file says of itself.
fn describe(builder: &mut Builder, file: &PerfFile) {
    let header = &mut builder.trace.tables.header;
    let text = |value: Result<Option<&str>, linux_perf_data::Error>| {
        let text = value.ok().flatten().unwrap_or_default();
        text.chars()
            .take(limits::MAX_NAME_BYTES / 4)
            .collect::<String>()
    };
    header.host = text(file.hostname());
    header.kernel = text(file.os_release());
    if let Ok(Some(cpus)) = file.nr_cpus() {
        header.n_cpus = cpus.nr_cpus_online.min(1 << 16);
    }
    let events = file.event_attributes().iter().filter_map(|e| e.name());
    let events: Vec<&str> = events.take(8).collect();
    let command: Vec<&str> = file.cmdline().ok().flatten().unwrap_or_default();
    let command: String = command.join(" ").chars().take(200).collect();
    builder.note(format!("events: {}; command: {command}", events.join(", ")));
}

/// What an on-CPU sample weighs, once all are known.
fn scale(events: &[Event], event: usize, sums: &[(u64, u64)]) -> f64 {
    let (n, periods) = sums.get(event).copied().unwrap_or_default();
    match events.get(event) {
        Some(Event {
            kind: Kind::Counted { hz: Some(hz) },
            ..
        }) if periods > 0 => n as f64 * 1e9 / *hz as f64 / periods as f64,
        _ => 1.0,
    }
}
