//! Large traces for benchmarks, the same bytes at each run.
//!
//! `generate distinct SAMPLES STACKS FILE`: 70 threads at 100 Hz in which each observation is a span
//! of its own: nothing to merge. Each of 9 pools has its part of so many stacks, each of which is
//! that of a thread that runs, waits for a CPU, or waits.
//!
//! `generate copies N SECONDS TRACE FILE`: a recorded trace as if N such processes had been recorded
//! together for so long. Each has modules, frames, stacks and spans of its own; the recording is
//! repeated, and begins in each process at another moment.
//!
//! `generate rewrite TRACE FILE`: a trace in the format that is written now, with a block for each second as in a
//! recording.
//!
//! `generate osd ID TRACE FILE`: a recorded trace as that of osd.ID. Four OSDs are on a host.
//!
//! `cargo xtask bench report` runs the first two, `cargo xtask parquet` the last.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use wcprof_trace::model::{
    Frame, FrameId, Header, Module, Process, ProcessId, Span, StackId, Stats, SymbolFrame,
    SymbolTable, Tables, Thread,
};
use wcprof_trace::{Ids, TraceReader, TraceSink, TraceWriter};
use wcprof_types::{Avma, Pid, RelativeAddress, StackEnd, Svma, ThreadState, Tid, TimeNs};

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["distinct", n_samples, n_stacks, file] => {
            distinct(n_samples.parse()?, n_stacks.parse()?, file.as_ref())
        }
        ["copies", n, seconds, trace, file] => {
            copies(n.parse()?, seconds.parse()?, trace.as_ref(), file.as_ref())
        }
        ["rewrite", trace, file] => rewrite(trace.as_ref(), file.as_ref(), |_| {}),
        ["osd", id, trace, file] => {
            let id: u32 = id.parse()?;
            rewrite(trace.as_ref(), file.as_ref(), |tables| as_osd(tables, id))
        }
        _ => Err(
            "usage: generate distinct SAMPLES STACKS FILE | copies N SECONDS TRACE FILE | \
                  rewrite TRACE FILE | osd ID TRACE FILE"
                .into(),
        ),
    }
}

fn as_osd(tables: &mut Tables, id: u32) {
    let host = format!("node{}", id / 4);
    for source in &mut tables.origins.sources {
        source.host.clone_from(&host);
    }
    tables.header.host = host;
    for process in &mut tables.processes {
        let words = ["ceph-osd", "-f", "--id", &id.to_string()];
        process.cmdline = words.map(str::to_owned).to_vec();
        process.comm = "ceph-osd".to_owned();
    }
}

fn rewrite(trace: &Path, file: &Path, change: impl Fn(&mut Tables)) -> Result<(), Failure> {
    let (mut tables, _) = TraceReader::open(trace)?.read(|_, _| {})?;
    change(&mut tables);
    let mut writer = TraceWriter::for_file(File::create(file)?, &tables.header)?;
    let ids = writer.add_tables(&tables)?;
    for source in &tables.origins.sources {
        writer.add_source(source)?;
    }
    for (process, source) in &tables.origins.recorded_again {
        writer.recorded_again(*process, *source)?;
    }
    let (mut failed, mut second) = (None, 0);
    TraceReader::open(trace)?.read(|_, span| {
        let mut add = || {
            // As in a recording, what ends in a second is in its block.
            let now = span.end.0 / 1_000_000_000;
            if now > second {
                second = now;
                writer.flush()?;
            }
            ids.span(&span).map_or(Ok(()), |span| writer.span(&span))
        };
        if failed.is_none() {
            failed = add().err();
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    writer.finish(&tables.stats)?;
    if let Some(symbols) = &tables.names.symbols {
        writer.write_symbols(symbols)?;
    }
    writer.write_local_names(&tables.names.local)?;
    println!(
        "{} thread-samples, {} bytes",
        tables.stats.n_observations,
        writer.len_bytes()
    );
    Ok(())
}

/// Numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

const N_THREADS: u64 = 70;
const TICK_NS: u64 = 10_000_000;
const N_FUNCTIONS: u64 = 3000;
const POOLS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
const N_POOLS: u64 = POOLS.len() as u64;

fn distinct(n_samples: u64, n_stacks: usize, file: &Path) -> Result<(), Failure> {
    let header = Header {
        wcprof_version: env!("CARGO_PKG_VERSION").into(),
        engine: "bpf".into(),
        rate_hz: 100,
        host: "generated".into(),
        kernel: "generated".into(),
        n_cpus: 8,
        ..Header::default()
    };
    let mut writer = TraceWriter::for_file(File::create(file)?, &header)?;
    let process = writer.add_process(Process {
        pid: Pid(1),
        comm: "generated".into(),
        ..Process::default()
    })?;
    let (frames, symbols) = functions(&mut writer, process)?;
    let mut numbers = Numbers(1);
    let stacks = stacks(&mut writer, &frames, n_stacks, &mut numbers)?;
    let threads = (0..N_THREADS)
        .map(|i| {
            let name = format!("pool_{}-{}", POOLS[(i % N_POOLS) as usize], i / N_POOLS);
            writer.add_thread(process, Tid(i as i32 + 1), TimeNs(0), &name)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let n_ticks = n_samples.div_ceil(N_THREADS);
    for tick in 0..n_ticks {
        for &thread in &threads {
            let pool = u64::from(thread.0) % N_POOLS;
            let stack = numbers.below(stacks.len() as u64 / N_POOLS) * N_POOLS + pool;
            writer.span(&Span {
                thread,
                start: TimeNs(tick * TICK_NS),
                end: TimeNs((tick + 1) * TICK_NS),
                weight: TICK_NS,
                n_samples: 1,
                state: match stack / N_POOLS % 3 {
                    0 => ThreadState::OnCpu,
                    1 => ThreadState::Runnable,
                    _ => ThreadState::Blocked,
                },
                wait: None,
                stack: stacks.get(stack as usize).copied(),
            })?;
        }
        if tick % 100 == 99 {
            writer.flush()?;
        }
    }
    let duration = TimeNs(n_ticks * TICK_NS);
    for &thread in &threads {
        writer.thread_seen(thread, TimeNs(0), duration, n_ticks)?;
    }
    writer.write_symbols(&symbols)?;
    writer.finish(&Stats {
        duration,
        n_ticks,
        n_observations: n_ticks * N_THREADS,
        end_reason: "generated".into(),
        complete: true,
        ..Stats::default()
    })?;
    println!(
        "{} thread-samples, {} bytes",
        n_ticks * N_THREADS,
        writer.len_bytes()
    );
    Ok(())
}

/// Adds a module with functions: their frames and names.
fn functions(
    writer: &mut TraceWriter<File>,
    process: ProcessId,
) -> Result<(Vec<FrameId>, SymbolTable), Failure> {
    let module = writer.add_module(Module {
        process,
        path: "/usr/bin/generated".into(),
        start: Avma(0x40_0000),
        end: Avma(0x4000_0000),
        base: Svma(0x40_0000),
        ..Module::default()
    })?;
    let mut symbols = SymbolTable::default();
    let mut frames = Vec::new();
    for function in 0..N_FUNCTIONS {
        let frame = writer.intern_frame(Frame::Native {
            module,
            address: RelativeAddress(function * 256 + 17),
            function: None,
        })?;
        let space = function % 40;
        let names = vec![SymbolFrame {
            name: format!("generated::namespace_{space}::function_{function}(int, char const*)"),
            file: Some(format!("/usr/src/generated/file_{}.cc", function % 200)),
            line: Some(function as u32 % 900 + 1),
            inlined: false,
            resolved: true,
        }];
        symbols.frames.insert(frame, names);
        frames.push(frame);
    }
    Ok((frames, symbols))
}

/// Adds stacks that branch like those of programs: most of a stack is that of a stack before.
fn stacks(
    writer: &mut TraceWriter<File>,
    frames: &[FrameId],
    n_stacks: usize,
    numbers: &mut Numbers,
) -> Result<Vec<StackId>, Failure> {
    let mut paths: Vec<Vec<FrameId>> = vec![Vec::new()];
    let mut stacks: Vec<StackId> = Vec::new();
    while stacks.len() < n_stacks {
        let mut path = paths[numbers.below(paths.len() as u64) as usize].clone();
        if path.len() > 5 {
            path.truncate(5 + numbers.below(path.len() as u64 - 5) as usize);
        }
        for _ in 0..4 + numbers.below(12) {
            path.push(frames[numbers.below(N_FUNCTIONS) as usize]);
        }
        path.truncate(40);
        stacks.push(writer.intern_stack(path.iter().copied(), StackEnd::Root)?);
        paths.push(path);
    }
    Ok(stacks)
}

/// One copy of the recording, and when it begins.
struct Copy {
    ids: Ids,
    shift: u64,
}

fn copies(n: u64, seconds: u64, trace: &Path, file: &Path) -> Result<(), Failure> {
    let (trace, _) = TraceReader::open(trace)?.read_all()?;
    let (tables, mut spans) = (&trace.tables, trace.spans);
    let lap = tables.stats.duration.0.max(1);
    let duration = seconds * 1_000_000_000;
    let mut writer = TraceWriter::for_file(File::create(file)?, &tables.header)?;
    let mut symbols = SymbolTable::default();
    let mut all = Vec::new();
    for at in 0..n {
        // No two begin alike, and one of them with the recording.
        let shift = at * 7919 * 1_000_000 % lap;
        let ids = writer.add_tables(&copy(tables, at, shift))?;
        let names = tables.names.symbols.iter().flat_map(|s| &s.frames);
        let renumbered = names.map(|(id, names)| (ids.frames[id.0 as usize], names.clone()));
        symbols.frames.extend(renumbered);
        all.push(Copy { ids, shift });
    }
    spans.sort_by_key(|span| span.end);
    let mut n_samples = 0;
    // Each copy runs through its spans by its own clock; a second of all of them is a block.
    let mut next = vec![(0_u64, 0_usize); all.len()];
    for second in 1..=seconds {
        let until = second * 1_000_000_000;
        for (copy, (n_laps, at)) in all.iter().zip(&mut next) {
            while let Some(span) = spans.get(*at) {
                let shift = copy.shift + *n_laps * lap;
                if span.end.0 + shift > until {
                    break;
                }
                let span = copy.ids.span(span).ok_or("a span of an unknown thread")?;
                writer.span(&Span {
                    start: TimeNs(span.start.0 + shift),
                    end: TimeNs(span.end.0 + shift),
                    ..span
                })?;
                n_samples += u64::from(span.n_samples);
                *at += 1;
                if *at == spans.len() {
                    (*n_laps, *at) = (*n_laps + 1, 0);
                }
            }
        }
        writer.flush()?;
    }
    let mut n_observations = 0;
    for copy in &all {
        for (thread, &id) in tables.threads.iter().zip(&copy.ids.threads) {
            let ticks = thread.n_ticks * (duration - copy.shift) / lap;
            n_observations += ticks;
            writer.thread_seen(id, TimeNs(copy.shift), TimeNs(duration), ticks)?;
        }
    }
    writer.write_symbols(&symbols)?;
    writer.finish(&Stats {
        duration: TimeNs(duration),
        n_ticks: seconds * u64::from(tables.header.rate_hz),
        n_observations,
        ..tables.stats.clone()
    })?;
    println!(
        "{n_observations} thread-samples ({n_samples} samples), {} bytes",
        writer.len_bytes()
    );
    Ok(())
}

/// Tables of processes like those of `tables`, of which threads are first seen `shift` ns after the
/// recording began.
fn copy(tables: &Tables, at: u64, shift: u64) -> Tables {
    let offset = at as i32 * 100_000;
    let mut copy = Tables {
        processes: tables.processes.clone(),
        modules: tables.modules.clone(),
        frames: tables.frames.clone(),
        nodes: tables.nodes.clone(),
        stacks: tables.stacks.clone(),
        waits: tables.waits.clone(),
        ..Tables::default()
    };
    for process in &mut copy.processes {
        process.pid.0 += offset;
    }
    copy.threads = tables
        .threads
        .iter()
        .map(|thread| {
            let (tid, name) = (Tid(thread.tid.0 + offset), thread.name().to_owned());
            Thread::new(thread.process, tid, TimeNs(shift), name)
        })
        .collect();
    copy
}
