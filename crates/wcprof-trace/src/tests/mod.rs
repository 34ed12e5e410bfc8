//! Tests of writer and reader together, against a naive model of what a trace holds.

mod damage;
mod files;
mod full;
mod hostile;
mod merging;
mod parts;
mod round_trip;
mod size;
mod unordered;

use std::collections::HashMap;
use std::io::Write;

use wcprof_types::lock::FutexWords;
use wcprof_types::{
    Avma, BuildId, CounterName, CounterValue, FdKind, FdTarget, FileOffset, LoadBias, Pid,
    RelativeAddress, StackEnd, StopCause, Svma, ThreadState, Tid, TimeNs, Wait,
};

use crate::model::{
    AccountsReading, CounterId, CounterReading, Frame, FrameId, Header, LaterName, LocalNames,
    LockLook, LockOwner, Losses, Module, ModuleId, NodeId, OwnerState, Process, ProcessEnd,
    ProcessId, Source, Span, Stack, StackId, StackNode, Stats, SymbolFrame, SymbolTable, Tables,
    Thread, ThreadId, Trace, WaitId,
};
use crate::{TraceSink, TraceWriter};

fn header() -> Header {
    Header {
        wcprof_version: "0.1.0".into(),
        engine: "procfs".into(),
        notes: vec!["bpf: not permitted".into(), String::new()],
        rate_hz: 99,
        host: "node".into(),
        kernel: "6.1.0-13-amd64".into(),
        n_cpus: 8,
        started_unix_ns: 1_700_000_000_000_000_000,
        n_snapshots: 3,
    }
}

/// One step of a recording: what to add, and numbers and text to make it of.
type Step = (u8, u64, u64, String);

/// Writes a recording and keeps what a reader should find.
struct Recording<W: Write> {
    writer: TraceWriter<W>,
    expected: Trace,
    /// Nanoseconds of each thread's weight beyond whole microseconds.
    unwritten: HashMap<ThreadId, u64>,
}

impl<W: Write> Recording<W> {
    fn new(writer: TraceWriter<W>) -> Self {
        Self {
            writer,
            unwritten: HashMap::new(),
            expected: Trace {
                tables: Tables::new(header()),
                spans: Vec::new(),
            },
        }
    }

    fn step(&mut self, step: &Step) {
        let &(kind, a, b, ref text) = step;
        let t = &mut self.expected.tables;
        let w = &mut self.writer;
        let pick = |n: u64, len: usize| (n % len.max(1) as u64) as u32;
        match kind % 12 {
            0 => {
                let process = Process {
                    pid: Pid(a as i32),
                    comm: text.clone(),
                    cmdline: vec![text.clone(); (b % 4) as usize],
                    cgroup: if b % 3 == 0 {
                        String::new()
                    } else {
                        format!("/{text}")
                    },
                    birth: if b % 2 == 0 {
                        String::new()
                    } else {
                        format!("boot {a}")
                    },
                };
                let id = w.add_process(process.clone()).unwrap();
                assert_eq!(id.0 as usize, t.processes.len());
                t.processes.push(process);
            }
            1 if !t.processes.is_empty() => {
                let module = Module {
                    process: ProcessId(pick(a, t.processes.len())),
                    path: text.clone(),
                    build_id: BuildId::new(&a.to_le_bytes()[..(b % 9) as usize]),
                    start: Avma(a),
                    end: Avma(b),
                    offset: FileOffset(a ^ b),
                    bias: LoadBias(b),
                    base: Svma(a),
                    deleted: a % 2 == 1,
                };
                w.add_module(module.clone()).unwrap();
                t.modules.push(module);
            }
            2 if !t.processes.is_empty() => {
                let process = ProcessId(pick(a, t.processes.len()));
                let seen = TimeNs(b >> 4);
                w.add_thread(process, Tid(a as i32), seen, text).unwrap();
                t.threads.push(Thread {
                    process,
                    tid: Tid(a as i32),
                    names: vec![(seen, text.clone())],
                    start: seen,
                    end: seen,
                    n_ticks: 0,
                });
            }
            3 if !t.threads.is_empty() => {
                let id = pick(a, t.threads.len());
                w.thread_name(ThreadId(id), TimeNs(b >> 4), text).unwrap();
                let thread = &mut t.threads[id as usize];
                if thread.name() != text {
                    thread.names.push((TimeNs(b >> 4), text.clone()));
                }
            }
            4 if !t.threads.is_empty() => {
                let id = pick(a, t.threads.len());
                let (start, end) = (TimeNs((a >> 4).min(b >> 4)), TimeNs((a >> 4).max(b >> 4)));
                w.thread_seen(ThreadId(id), start, end, a ^ b).unwrap();
                let thread = &mut t.threads[id as usize];
                (thread.start, thread.end, thread.n_ticks) = (start, end, a ^ b);
            }
            5 => {
                let frame = match a % 5 {
                    0 => Frame::Unmapped(Avma(b)),
                    4 => Frame::KernelCode(Avma(b)),
                    1 => Frame::Kernel(text.clone()),
                    n if !t.modules.is_empty() => Frame::Native {
                        module: ModuleId(pick(a, t.modules.len())),
                        address: RelativeAddress(b),
                        function: (n == 2).then_some(RelativeAddress(a)),
                    },
                    _ => Frame::Unmapped(Avma(b % 3)),
                };
                let id = w.intern_frame(frame.clone()).unwrap();
                assert_eq!(id.0 as usize, intern(&mut t.frames, frame));
            }
            6 if !t.frames.is_empty() => {
                let n_frames = t.frames.len();
                let frames: Vec<_> = (0..a % 5)
                    .map(|i| FrameId(pick((a >> 8) ^ (b >> (i * 8)), n_frames)))
                    .collect();
                let end = StackEnd::ALL[pick(b, StackEnd::ALL.len()) as usize];
                let id = w.intern_stack(frames.iter().copied(), end).unwrap();
                let leaf = frames.iter().fold(None, |caller, &frame| {
                    let node = intern(&mut t.nodes, StackNode { caller, frame });
                    Some(NodeId(node as u32))
                });
                let stack = intern(&mut t.stacks, Stack { leaf, end });
                assert_eq!(id.0 as usize, stack);
            }
            7 => {
                let kinds = [
                    FdKind::Regular,
                    FdKind::Socket,
                    FdKind::Anon,
                    FdKind::Unknown,
                ];
                let wait = Wait {
                    syscall: (a % 3 != 0).then_some(a as u32),
                    op: b as u32,
                    fd: (b % 2 == 0).then(|| FdTarget {
                        kind: kinds[pick(a, 4) as usize],
                        path: text.clone(),
                    }),
                    futex: (a % 7 == 0).then_some(Avma(b)),
                    kernel: text.clone(),
                    stop: (a % 5 == 0).then(|| StopCause::ALL[pick(b, 4) as usize]),
                };
                let id = w.intern_wait(wait.clone()).unwrap();
                assert_eq!(id.0 as usize, intern(&mut t.waits, wait));
            }
            8 if !t.threads.is_empty() => {
                let states = [
                    ThreadState::OnCpu,
                    ThreadState::Guest,
                    ThreadState::Runnable,
                    ThreadState::Blocked,
                    ThreadState::StealIrq,
                ];
                // Now and then the interval of the span before, or the next one.
                let thread = ThreadId(pick(a, t.threads.len()));
                let before = self.expected.spans.iter().rfind(|s| s.thread == thread);
                let (start, end) = match (before, b % 3) {
                    (Some(s), 0) => (s.start, s.end),
                    (Some(s), 1) => (s.end, TimeNs(s.end.0 + (a >> 44))),
                    _ => (TimeNs(b >> 8), TimeNs((b >> 8) + (a >> 40))),
                };
                let span = Span {
                    thread,
                    start,
                    end,
                    weight: if a % 2 == 0 { end.0 - start.0 } else { a >> 24 },
                    n_samples: b as u32,
                    state: states[pick(a >> 3, 5) as usize],
                    wait: (!t.waits.is_empty() && a % 3 == 0)
                        .then(|| WaitId(pick(b, t.waits.len()))),
                    stack: (!t.stacks.is_empty() && a % 5 != 0)
                        .then(|| StackId(pick(b, t.stacks.len()))),
                };
                w.span(&span).unwrap();
                let whole = |ns| ns - ns % 1000;
                let unwritten = self.unwritten.entry(thread).or_default();
                let total = span.weight + *unwritten;
                let mut weight = whole(total);
                if span.weight <= end.0 - start.0 {
                    weight = weight.min(whole(end.0) - whole(start.0));
                }
                *unwritten = total - weight;
                self.expected.spans.push(Span {
                    start: TimeNs(whole(start.0)),
                    end: TimeNs(whole(end.0)),
                    weight,
                    ..span
                });
            }
            10 if !t.threads.is_empty() => lock_step(w, t, (a, b)),
            11 if !t.processes.is_empty() => counter_step(w, t, (a, b)),
            9 if a % 3 == 0 => w.flush().unwrap(),
            9 if a % 3 == 1 => {
                let json = format!("{{{text}}}");
                w.add_setup(&json).unwrap();
                t.origins.setups.push(json);
                let reading = AccountsReading {
                    source: 0,
                    time: TimeNs(a >> 4),
                    json: format!("{text}é"),
                };
                t.origins.accounts.push(reading.clone());
                w.accounts(reading).unwrap();
            }
            9 if !t.processes.is_empty() => {
                let id = ProcessId(pick(b, t.processes.len()));
                let end = ProcessEnd {
                    time: TimeNs(a >> 4),
                    reason: text.clone(),
                };
                w.process_ended(id, &end).unwrap();
                t.origins.process_ends.insert(id, end);
                w.process_folded(id, b as u32).unwrap();
                t.origins.folded.insert(id, b as u32);
                let source = Source {
                    host: text.clone(),
                    engine: "bpf".into(),
                    kernel: text.clone(),
                    n_cpus: b as u32,
                    rate_hz: a as u32,
                    started_unix_ns: a,
                    start: TimeNs(b >> 4),
                    duration: TimeNs(a >> 4),
                    n_processes: a as u32,
                };
                w.add_source(&source).unwrap();
                t.origins.sources.push(source);
            }
            _ => {}
        }
    }
}

/// Adds a reading of a process's counters, of which those are kept that changed.
fn counter_step<W: Write>(w: &mut TraceWriter<W>, t: &mut Tables, (a, b): (u64, u64)) {
    let name = CounterName {
        name: format!("osd.op_{}", a % 4),
        timed: a % 2 == 1,
    };
    let facts = &mut t.origins.counters;
    let id = w.intern_counter(&name).unwrap();
    assert_eq!(id.0 as usize, intern(&mut facts.names, name));
    let process = ProcessId((b % t.processes.len() as u64) as u32);
    let values = (0..facts.names.len() as u32).map(|id| {
        let (count, time_ns) = (a >> (8 * id), b.wrapping_mul(u64::from(id)));
        (CounterId(id), CounterValue { count, time_ns })
    });
    let mut reading = CounterReading {
        process,
        time: TimeNs(b >> 4),
        values: values.collect(),
    };
    w.counters(&reading).unwrap();
    reading.values.retain(|(id, value)| {
        let earlier = facts.readings.iter().rev().filter(|r| r.process == process);
        let mut earlier = earlier.flat_map(|reading| &reading.values);
        let last = earlier.find(|(other, _)| other == id);
        last.map_or(CounterValue::default(), |(_, value)| *value) != *value
    });
    facts.readings.push(reading);
}

/// Adds one of the facts about locks.
fn lock_step<W: Write>(w: &mut TraceWriter<W>, t: &mut Tables, (a, b): (u64, u64)) {
    let thread = ThreadId((a % t.threads.len() as u64) as u32);
    match b % 5 {
        0 => {
            w.own_tid(thread, Tid(b as i32)).unwrap();
            t.locks.own_tids.insert(thread, Tid(b as i32));
        }
        1 => {
            w.waiter_moved(thread, TimeNs(b >> 4)).unwrap();
            t.locks.moved.push((thread, TimeNs(b >> 4)));
        }
        2 => {
            w.locks_skipped(b >> 8).unwrap();
            t.locks.n_skipped = t.locks.n_skipped.saturating_add(b >> 8);
        }
        _ => {
            let states = [OwnerState::Running, OwnerState::Queued, OwnerState::Blocked];
            let owner = |word| LockOwner {
                word,
                thread,
                state: states[(a % 3) as usize],
                moved: b % 2 == 0,
                stack: (!t.stacks.is_empty()).then(|| StackId((b % t.stacks.len() as u64) as u32)),
                wait: (!t.waits.is_empty() && a % 2 == 0)
                    .then(|| WaitId((b % t.waits.len() as u64) as u32)),
            };
            let look = LockLook {
                process: t.threads[thread.0 as usize].process,
                address: Avma(a),
                since: TimeNs((a >> 4).min(b >> 4)),
                until: TimeNs((a >> 4).max(b >> 4)),
                n_looks: a as u32,
                words: FutexWords([a as u32, 0, b as u32, 1, u32::MAX, 0, 3]),
                owners: (0..(a % 3) as u8).map(owner).collect(),
            };
            w.lock_look(&look).unwrap();
            t.locks.looks.push(look);
        }
    }
}

fn intern<T: PartialEq>(table: &mut Vec<T>, entry: T) -> usize {
    table.iter().position(|e| *e == entry).unwrap_or_else(|| {
        table.push(entry);
        table.len() - 1
    })
}

/// Steps that fill every table and make several blocks.
fn some_steps() -> Vec<Step> {
    let mut x = 1_u64;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        x ^ (x >> 29)
    };
    let mut steps: Vec<Step> = (0..12).map(|k| (k, 2, 6, "first".into())).collect();
    steps.extend((0..140).map(|i| {
        let text = format!("text-{}", next() % 7);
        (
            if i % 3 == 0 { 8 } else { (next() % 12) as u8 },
            next(),
            next(),
            text,
        )
    }));
    steps
}

fn final_stats() -> Stats {
    Stats {
        duration: TimeNs(10_000_000_000),
        n_ticks: 990,
        losses: Losses {
            n_late: 1,
            n_missed: 2,
            n_torn: 3,
            n_lost: 5,
            n_dropped_batches: 6,
        },
        n_observations: 70_000,
        n_timer_samples: 4,
        ends: StackEnd::ALL.into_iter().zip(1..).collect(),
        own_cpu_ns: 7,
        own_rss_bytes: 8,
        rate_changes: vec![(TimeNs(0), 99), (TimeNs(5), 50)],
        end_reason: "duration".into(),
        complete: true,
    }
}

fn local_names(n_frames: usize) -> LocalNames {
    let names = symbols(n_frames);
    let later = names.frames.iter().map(|(&frame, functions)| LaterName {
        frame,
        since: TimeNs(u64::from(frame.0) * 1000),
        functions: functions.clone(),
    });
    LocalNames {
        later: later.collect(),
        names,
    }
}

fn symbols(n_frames: usize) -> SymbolTable {
    let function = |i: usize, inlined: bool| SymbolFrame {
        name: format!("ns::f{}<int>(char const*)", i % 5),
        file: i.is_multiple_of(2).then(|| "src/f.cc".into()),
        line: (!i.is_multiple_of(3)).then_some(i as u32 * 100),
        inlined,
        resolved: i % 4 != 3,
    };
    SymbolTable {
        frames: (0..n_frames)
            .filter(|i| i % 3 != 1)
            .map(|i| {
                let chain = vec![function(i, true), function(i + 1, false)];
                (FrameId(i as u32), chain)
            })
            .collect(),
    }
}

/// A finished trace with names, and what a reader should find in it.
fn some_trace() -> (Vec<u8>, Trace) {
    let mut recording = Recording::new(TraceWriter::new(Vec::new(), &header()).unwrap());
    for step in some_steps() {
        recording.step(&step);
    }
    recording.writer.finish(&final_stats()).unwrap();
    let names = symbols(recording.expected.tables.frames.len());
    recording.writer.write_symbols(&names).unwrap();
    let local = local_names(recording.expected.tables.frames.len());
    recording.writer.write_local_names(&local).unwrap();
    recording.expected.tables.names.local = local;
    recording.expected.tables.stats = final_stats();
    recording.expected.tables.names.symbols = Some(names);
    let bytes = recording.writer.into_inner();
    let Trace { tables, mut spans } = recording.expected;
    spans.sort_by_key(|span| span.end);
    (bytes, Trace { tables, spans })
}
