//! `perf.data`: samples of running threads, and time off CPU from `sched:sched_switch`,
//! `PERF_RECORD_SWITCH` or `perf record --off-cpu`.
//!
//! A sample of a clock weighs its period. One of another event (cycles) weighs in proportion to its
//! period, so that shares are those of `perf report`, and all of them together what the sampling
//! frequency makes of their number. Time off CPU goes from the switch to the next sign of the thread.

mod dwarf;
mod events;
mod finish;
mod jit;
mod maps;
mod offcpu;
mod pieces;
mod preflight;
mod processes;
mod sound;
mod threads;

use std::io::{BufReader, Read, Seek, SeekFrom};

use linux_perf_data::linux_perf_event_reader::{CpuMode, EventRecord, Mmap2FileId, RawEventRecord};
use linux_perf_data::{PerfFile, PerfFileReader, PerfFileRecord};
use wcprof_trace::model::Trace;
use wcprof_types::{BuildId, redact_args};

use crate::builder::Builder;
use crate::code::{CodeFiles, SeenFile};
use crate::error::{ImportError, Result};
use crate::limits;
use crate::options::Options;
use events::Event;
use maps::Map;
use processes::Processes;
use threads::Recording;

/// `PROT_EXEC` of a mapping.
const PROT_EXEC: u32 = 4;

pub(crate) fn import<R: Read + Seek>(
    mut source: R,
    options: &Options,
    code: &mut dyn CodeFiles,
) -> Result<Trace> {
    preflight::check(&mut source)?;
    source.seek(SeekFrom::Start(0)).map_err(ImportError::Read)?;
    let parsed = PerfFileReader::parse_file(BufReader::new(source));
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = parsed.map_err(|e| ImportError::Perf(e.to_string()))?;
    let mut builder = Builder::new("perf.data", options);
    let command = describe(&mut builder, &perf_file);
    let events = perf_file.event_attributes().iter().map(Event::new);
    let events: Vec<Event> = events.collect();
    if events.iter().all(|event| event.reads) {
        let what = "counters are read beside its samples (a group `{a,b}:S`, or `perf record -s`), which is not supported: record \
                    one event with `perf record -e cycles -g`";
        return Err(ImportError::Perf(what.to_owned()));
    }
    let processes = Processes::new(perf_file.build_ids().unwrap_or_default(), code);
    let made_for = command.get(1).and_then(|word| made_for(word));
    let mut recording = Recording::new(builder, events, processes, made_for);
    let (mut n_records, mut n_bad) = (0_u64, 0_u64);
    let damage = loop {
        match record_iter.next_record(&mut perf_file) {
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                n_records += 1;
                n_bad += u64::from(!read(&mut recording, attr_index, &record)?);
            }
            Ok(Some(PerfFileRecord::UserRecord(_))) => {}
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    if let Some(error) = damage {
        if recording.counts.n_samples == 0 {
            return Err(ImportError::Perf(error));
        }
        recording.builder.note(format!(
            "the file is damaged after {n_records} records; the rest is missing: {error}"
        ));
    }
    let counts = [(n_bad, "records were not understood")];
    recording.builder.note_counts(counts);
    finish::finish(recording)
}

/// Adds one record of the event `attr`; returns whether it was understood.
fn read(recording: &mut Recording<'_>, attr: usize, raw: &RawEventRecord<'_>) -> Result<bool> {
    if !sound::is_sound(raw) {
        return Ok(false);
    }
    let Ok(record) = raw.parse() else {
        return Ok(false);
    };
    let common = raw.common_data().ok();
    match record {
        EventRecord::Sample(sample) => recording.sample(attr, &sample)?,
        EventRecord::Comm(comm) => {
            let name = comm.name.as_slice();
            let name = String::from_utf8_lossy(&name);
            recording.comm(comm.pid, comm.tid, &name, comm.is_execve)?;
        }
        EventRecord::Fork(fork) => recording.fork(fork.pid, fork.tid, fork.ppid, fork.ptid)?,
        EventRecord::Exit(exit) => recording.exit(exit.tid, exit.timestamp)?,
        EventRecord::Mmap(m) if m.is_executable && matches!(m.cpu_mode, CpuMode::User) => {
            let end = m.address.saturating_add(m.length);
            let map = Map::new(end, m.page_offset, &m.path.as_slice(), None);
            let builder = &mut recording.builder;
            recording.processes.map(m.pid, m.address, map, builder)?;
        }
        EventRecord::Mmap2(m)
            if m.protection & PROT_EXEC != 0 && matches!(m.cpu_mode, CpuMode::User) =>
        {
            let (build_id, seen) = match &m.file_id {
                Mmap2FileId::BuildId(id) => (BuildId::new(id), None),
                Mmap2FileId::InodeAndVersion(file) => (
                    None,
                    Some(SeenFile {
                        device: (file.major, file.minor),
                        inode: file.inode,
                    }),
                ),
            };
            let end = m.address.saturating_add(m.length);
            let mut map = Map::new(end, m.page_offset, &m.path.as_slice(), build_id);
            map.seen = seen;
            let builder = &mut recording.builder;
            recording.processes.map(m.pid, m.address, map, builder)?;
        }
        EventRecord::Lost(lost) => {
            let n_lost = &mut recording.counts.n_lost;
            *n_lost = n_lost.saturating_add(lost.count);
        }
        EventRecord::ContextSwitch(switch) => {
            if let Some(c) = common
                && let (Some(tid), Some(time)) = (c.tid, c.timestamp)
            {
                recording.switch(tid, time, &switch)?;
            }
        }
        _ => {}
    }
    Ok(true)
}

/// What a recording is for that another command of perf than `record` made, by that command's name.
fn made_for(command: &str) -> Option<&'static str> {
    Some(match command {
        "sched" => "it is of `perf sched record`: switches and wake-ups, for `perf sched timehist`",
        "lock" => {
            "it is of `perf lock record`: waits for locks of the kernel, for `perf lock contention -i FILE`"
        }
        "trace" => "it is of `perf trace record`: system calls, for `perf trace -i FILE`",
        "mem" => "it is of `perf mem record`: accesses to memory, for `perf mem report`",
        "c2c" => "it is of `perf c2c record`: cache lines that CPUs share, for `perf c2c report`",
        "kmem" => "it is of `perf kmem record`: memory of the kernel, for `perf kmem stat`",
        "kvm" => "it is of `perf kvm`: exits of guests, for `perf kvm stat report`",
        "timechart" => "it is of `perf timechart record`, for `perf timechart`",
        _ => return None,
    })
}

/// Adds what the file says about its recording. Gives the command that made it, program first.
fn describe(builder: &mut Builder, file: &PerfFile) -> Vec<String> {
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
    let command = file.cmdline().ok().flatten().unwrap_or_default();
    let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
    let shown = redact_args("perf", &command).join(" ");
    let shown: String = shown.chars().take(200).collect();
    builder.note(format!("events: {}; command: {shown}", events.join(", ")));
    command
}
