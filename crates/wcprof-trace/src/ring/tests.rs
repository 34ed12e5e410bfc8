//! Cuts, dropping and limits of the ring, with recordings made here.

use std::collections::BTreeMap;
use std::time::Duration;

use wcprof_types::{
    Avma, CounterName, CounterValue, FdKind, FdTarget, Pid, RelativeAddress, StackEnd, ThreadState,
    Tid, TimeNs, Wait,
};

use super::{Ring, RingOptions, Snapshot};
use crate::TraceSink;
use crate::limits;
use crate::model::{
    AccountsReading, CounterReading, Frame, Header, Module, Process, ProcessEnd, ProcessId, Span,
    StackId, Stats, ThreadId, Trace, WaitId,
};
use crate::{Ending, TraceReader, TraceWriter};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn header() -> Header {
    Header {
        wcprof_version: "0".into(),
        engine: "bpf".into(),
        notes: Vec::new(),
        rate_hz: 100,
        host: "h".into(),
        kernel: "k".into(),
        n_cpus: 2,
        started_unix_ns: 5 * S,
        n_snapshots: 0,
    }
}

fn ring(keep: u64, max_bytes: usize) -> Ring {
    let keep = Duration::from_secs(keep);
    Ring::new(RingOptions { keep, max_bytes }, header(), vec!["{}".into()]).unwrap()
}

fn process(ring: &mut Ring, pid: i32) -> ProcessId {
    ring.add_process(Process {
        pid: Pid(pid),
        comm: "p".into(),
        cmdline: Vec::new(),
        cgroup: String::new(),
        birth: String::new(),
    })
    .unwrap()
}

fn stack(ring: &mut Ring, addresses: &[u64]) -> StackId {
    let mut frames = Vec::new();
    for &address in addresses {
        frames.push(ring.intern_frame(Frame::Unmapped(Avma(address))).unwrap());
    }
    ring.intern_stack(frames, StackEnd::Root).unwrap()
}

fn wait(ring: &mut Ring, path: &str) -> WaitId {
    ring.intern_wait(Wait {
        syscall: Some(1),
        op: 0,
        fd: Some(FdTarget {
            kind: FdKind::Regular,
            path: path.into(),
        }),
        futex: None,
        ..Wait::default()
    })
    .unwrap()
}

fn span(thread: ThreadId, start: u64, end: u64, weight: u64, stack: StackId) -> Span {
    Span {
        thread,
        start: TimeNs(start),
        end: TimeNs(end),
        weight,
        n_samples: 1,
        state: ThreadState::Blocked,
        wait: None,
        stack: Some(stack),
    }
}

/// Says that `now` has come, with a tick for each 10 ms.
fn tick(ring: &mut Ring, now: u64, threads: &[ThreadId]) {
    for &thread in threads {
        ring.thread_seen(thread, TimeNs(0), TimeNs(now), now / (10 * MS))
            .unwrap();
    }
    ring.set_stats(&Stats {
        duration: TimeNs(now),
        n_ticks: now / (10 * MS),
        ends: BTreeMap::from([(StackEnd::Root, now / (10 * MS))]),
        ..Stats::default()
    })
    .unwrap();
    ring.flush().unwrap();
}

/// The trace of a snapshot as a file would hold it.
fn trace(snapshot: &Snapshot, from: u64) -> Trace {
    let cut = snapshot.cut(TimeNs(from)).unwrap();
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes, &cut.tables().header).unwrap();
    cut.write(&mut writer, "signal").unwrap();
    let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
    let (trace, ending) = reader.read_all().unwrap();
    assert_eq!(ending, Ending::Clean);
    trace
}

fn sum(trace: &Trace, thread: usize) -> u64 {
    let of = |span: &&Span| span.thread.0 as usize == thread;
    trace.spans.iter().filter(of).map(|s| s.weight).sum()
}

/// Check that a cut at any moment gives each thread exactly the time after it, though spans overlap
/// and carry time from before it; that times begin at 0; and that counts are those since then.
#[test]
fn weights_add_up_at_any_cut() {
    let mut ring = ring(3, usize::MAX);
    let process = process(&mut ring, 7);
    let threads = [0, 1].map(|at| {
        ring.add_thread(process, Tid(7 + at), TimeNs(0), "t")
            .unwrap()
    });
    let stacks = [stack(&mut ring, &[1, 2]), stack(&mut ring, &[1, 3])];
    let mut emitted = 0;
    for n in 1..=500_u64 {
        let now = n * 10 * MS;
        // One thread is blocked all the time; the other's run time is known late: of every third
        // interval a part is given out with the one after it, in a span that begins earlier.
        if n % 50 == 0 {
            let blocked = span(threads[0], now - 500 * MS, now, 500 * MS, stacks[0]);
            ring.span(&blocked).unwrap();
        }
        let carried = if n % 3 == 1 { 7 * MS + n } else { 0 };
        let due = now - carried - emitted;
        let start = emitted.min(now - 10 * MS);
        let on_cpu = Span {
            state: ThreadState::OnCpu,
            ..span(threads[1], start, now, due / 3, stacks[0])
        };
        ring.span(&on_cpu).unwrap();
        ring.span(&span(threads[1], start, now, due - due / 3, stacks[1]))
            .unwrap();
        emitted += due;
        if n % 100 == 0 {
            tick(&mut ring, now, &threads);
        }
    }
    // What is not given out yet, as a recording that ends now would.
    let rest = vec![span(
        threads[1],
        4990 * MS,
        5 * S,
        5 * S - emitted,
        stacks[1],
    )];
    let snapshot = ring.snapshot(rest);
    assert_eq!(snapshot.start(), TimeNs(2 * S));
    for from in [0, 2 * S, 2 * S + 1, 2_503 * MS + 77, 3 * S, 4_999 * MS] {
        let trace = trace(&snapshot, from);
        let from = from.max(2 * S);
        for thread in [0, 1] {
            let got = sum(&trace, thread);
            assert!(got.abs_diff(5 * S - from) <= 1000, "{from}: {got}");
            assert_eq!(trace.tables.threads[thread].start, TimeNs(0));
        }
        for span in &trace.spans {
            assert!(span.weight <= span.end.0 - span.start.0, "{span:?}");
        }
        let stats = &trace.tables.stats;
        assert_eq!(stats.duration, TimeNs(5 * S - from));
        let n_ticks = (5 * S - from) / (10 * MS);
        assert!(stats.n_ticks.abs_diff(n_ticks) <= 1, "{stats:?}");
        assert!(stats.ends[&StackEnd::Root].abs_diff(n_ticks) <= 1);
        assert_eq!(
            (stats.end_reason.as_str(), stats.complete),
            ("signal", true)
        );
        assert_eq!(trace.tables.header.started_unix_ns, 5 * S + from);
        assert_eq!(trace.tables.origins.setups, ["{}"]);
    }
}

/// Check that a ring that runs for long, with new stacks, waits, threads and processes all the time,
/// holds no more of them than its time has, and that what is left is right.
#[test]
fn nothing_grows() {
    let mut ring = ring(5, usize::MAX);
    let main = process(&mut ring, 1);
    let lasting = ring.add_thread(main, Tid(1), TimeNs(0), "main").unwrap();
    let held = stack(&mut ring, &[u64::MAX]);
    let mut sizes = Vec::new();
    for second in 1..=600_u64 {
        let now = second * S;
        let child = process(&mut ring, second as i32 + 100);
        let young = ring
            .add_thread(child, Tid(second as i32 + 100), TimeNs(now - S), "young")
            .unwrap();
        for n in 0..200 {
            let id = stack(&mut ring, &[1, second, second * 1000 + n]);
            let at = now - S + n * 5 * MS;
            let span = Span {
                wait: Some(wait(&mut ring, &format!("/{second}/{n}"))),
                ..span(lasting, at, at + 5 * MS, 5 * MS, id)
            };
            ring.span(&span).unwrap();
        }
        let id = stack(&mut ring, &[1, second]);
        ring.span(&span(young, now - S, now, S, id)).unwrap();
        ring.thread_seen(young, TimeNs(now - S), TimeNs(now), 100)
            .unwrap();
        ring.thread_ended(young);
        let end = ProcessEnd {
            time: TimeNs(now),
            reason: "exited".into(),
        };
        ring.process_ended(child, &end).unwrap();
        tick(&mut ring, now, &[lasting]);
        // As often as it would be due in a larger one.
        if second % 10 == 0 {
            ring.sweep(&[(Some(held), None)]);
            sizes.push(ring.bytes());
        }
    }
    assert!(ring.tables.stacks.get(held.0).is_some());
    let most = |sizes: &[usize]| sizes.iter().copied().max().unwrap();
    // Tables keep room for more, now more and now less of it.
    assert!(
        most(&sizes[30..]) <= most(&sizes[..30]) * 11 / 10,
        "{sizes:?}"
    );
    assert!(ring.tables.threads.len() < 10 && ring.tables.processes.len() < 10);
    assert!(ring.tables.stacks.len() < 4000, "ids are given out again");
    let trace = trace(&ring.snapshot(Vec::new()), 0);
    let tables = &trace.tables;
    assert_eq!(tables.stacks.len(), 5 * 201);
    assert_eq!(tables.waits.len(), 5 * 200);
    assert_eq!((tables.threads.len(), tables.processes.len()), (6, 6));
    assert_eq!(sum(&trace, 0), 5 * S);
    let last = trace.spans.iter().rfind(|s| s.thread.0 == 0).unwrap();
    let mut addresses = Vec::new();
    let mut next = tables.stacks[last.stack.unwrap().0 as usize].leaf;
    while let Some(id) = next {
        let node = tables.nodes[id.0 as usize];
        addresses.push(tables.frames[node.frame.0 as usize].clone());
        next = node.caller;
    }
    let expected = [600_199, 600, 1].map(|a| Frame::Unmapped(Avma(a)));
    assert_eq!(addresses, expected);
    let wait = &tables.waits[last.wait.unwrap().0 as usize];
    assert_eq!(wait.fd.as_ref().unwrap().path, "/600/199");
}

/// Check that a ring without memory for its time keeps the last part of it, and says so.
#[test]
fn memory_limit() {
    let max = 1 << 20;
    let mut ring = ring(3600, max);
    let process = process(&mut ring, 1);
    let thread = ring.add_thread(process, Tid(1), TimeNs(0), "t").unwrap();
    for second in 1..=300_u64 {
        for n in 0..200 {
            let id = stack(&mut ring, &[1, second, second * 1000 + n]);
            let at = (second - 1) * S + n * 5 * MS;
            ring.span(&span(thread, at, at + 5 * MS, 5 * MS, id))
                .unwrap();
        }
        tick(&mut ring, second * S, &[thread]);
        if ring.sweep_due() {
            ring.sweep(&[]);
        }
        assert!(ring.bytes() <= max, "{}", ring.bytes());
    }
    assert!(ring.memory().n_shortened > 0);
    // What is dropped gives its memory back, so that no more is dropped than must be.
    assert!(ring.bytes() > max / 3, "{}", ring.bytes());
    let snapshot = ring.snapshot(Vec::new());
    let kept = 300 * S - snapshot.start().0;
    assert!((2 * S..60 * S).contains(&kept), "{kept}");
    let trace = trace(&snapshot, 0);
    let note = "less time was kept than asked for, since its memory (1 MB) or a table was full";
    assert_eq!(
        trace.tables.header.notes.last().map(String::as_str),
        Some(note)
    );
    assert_eq!(trace.tables.stats.duration, TimeNs(kept));
    assert_eq!(sum(&trace, 0), kept);
}

/// Check that a full table is swept however much memory there is, and that the oldest part is dropped for room in it.
#[test]
fn full_table() {
    let mut ring = ring(3600, usize::MAX);
    let process = process(&mut ring, 1);
    let thread = ring.add_thread(process, Tid(1), TimeNs(0), "t").unwrap();
    let stack = stack(&mut ring, &[1]);
    let mut second = 0;
    while ring.room().waits {
        for n in 0..1 << 16 {
            let at = second * S + n;
            let wait = ring.intern_wait(Wait {
                futex: Some(Avma(at)),
                ..Wait::default()
            });
            let mut span = span(thread, at, at + 1, 1, stack);
            span.wait = Some(wait.unwrap());
            ring.span(&span).unwrap();
        }
        second += 1;
        tick(&mut ring, second * S, &[thread]);
        if ring.room().waits {
            // All are in use.
            ring.sweep(&[]);
        }
    }
    assert!(ring.memory().n_shortened == 0 && ring.sweep_due());
    ring.sweep(&[]);
    assert!(ring.memory().n_shortened > 0 && ring.room().waits);
    assert!(ring.snapshot(Vec::new()).start().0 < second * S / 2);
}

/// Check that weights add up where chunks that were full between two flushes are dropped: what is kept
/// begins at their end, not at the flush before them.
#[test]
fn full_chunks_are_dropped() {
    let mut ring = ring(1000, 8 << 10);
    let process = process(&mut ring, 1);
    let thread = ring.add_thread(process, Tid(1), TimeNs(0), "t").unwrap();
    let stacks = [stack(&mut ring, &[1]), stack(&mut ring, &[2, 1])];
    tick(&mut ring, S, &[thread]);
    let mut now = S;
    for i in 0..1_000_000_u64 {
        let length = (1 + i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 50) * 1000;
        let of = span(
            thread,
            now,
            now + length,
            length,
            stacks[(length / 1000 % 2) as usize],
        );
        ring.span(&of).unwrap();
        now += length;
    }
    assert!(ring.chunks.len() > 2, "{ring:?}");
    tick(&mut ring, now, &[thread]);
    ring.sweep(&[]);
    assert!(ring.n_shortened > 0 && ring.start() > TimeNs(S), "{ring:?}");
    let trace = trace(&ring.snapshot(Vec::new()), 0);
    let seen = &trace.tables.threads[0];
    assert_eq!(sum(&trace, 0), seen.end.0 - seen.start.0);
}

/// Check that of a thread's names the one that held at the cut and later ones are kept.
#[test]
fn names() {
    let mut ring = ring(2, usize::MAX);
    let process = process(&mut ring, 1);
    let thread = ring.add_thread(process, Tid(1), TimeNs(0), "n0").unwrap();
    let id = stack(&mut ring, &[1]);
    for second in 1..=10 {
        let at = TimeNs(second * S - S / 2);
        ring.thread_name(thread, at, &format!("n{second}")).unwrap();
        ring.thread_name(thread, at, &format!("n{second}")).unwrap();
        ring.span(&span(thread, (second - 1) * S, second * S, S, id))
            .unwrap();
        tick(&mut ring, second * S, &[thread]);
    }
    let trace = trace(&ring.snapshot(Vec::new()), 0);
    let names = &trace.tables.threads[0].names;
    let expected = [(0, "n8"), (S / 2 + S, "n10")].map(|(at, n)| (TimeNs(at), n.to_owned()));
    assert_eq!(names.first(), Some(&expected[0]));
    assert_eq!(names.last(), Some(&expected[1]));
    assert_eq!(names.len(), 3);
}

/// Check that threads that rename themselves all the time take little, and that this is counted.
#[test]
fn many_names() {
    let mut ring = ring(2, usize::MAX);
    let process = process(&mut ring, 1);
    let thread = ring.add_thread(process, Tid(1), TimeNs(0), "n0").unwrap();
    let before = ring.bytes();
    for i in 1..5000 {
        let name = format!("n{i}");
        ring.thread_name(thread, TimeNs(i), &name).unwrap();
    }
    let names = limits::MAX_THREAD_NAMES * (limits::STRING_BYTES + 16);
    assert!((names..3 * names).contains(&(ring.bytes() - before)));
    let trace = trace(&ring.snapshot(Vec::new()), 0);
    let names = &trace.tables.threads[0].names;
    assert_eq!(names.len(), limits::MAX_THREAD_NAMES);
    assert_eq!(names.last(), Some(&(TimeNs(4999), "n4999".to_owned())));
}

/// Check that a process that stands for several stays, and says for how many.
#[test]
fn folded() {
    let mut ring = ring(2, 1 << 20);
    let folded = process(&mut ring, 7);
    for n in 1..=417 {
        ring.process_folded(folded, n).unwrap();
    }
    let thread = ring.add_thread(folded, Tid(7), TimeNs(0), "sh").unwrap();
    let stack = stack(&mut ring, &[1]);
    for now in 1..=9 {
        ring.span(&span(thread, now * S - S, now * S, S, stack))
            .unwrap();
        tick(&mut ring, now * S, &[thread]);
    }
    let origins = trace(&ring.snapshot(Vec::new()), 7 * S).tables.origins;
    assert_eq!(origins.folded, BTreeMap::from([(ProcessId(0), 417)]));
}

/// Check that modules that are mapped no more are forgotten with their last frame, and others are not.
#[test]
fn unmapped_modules() {
    let mut ring = ring(2, 1 << 20);
    let process = process(&mut ring, 7);
    let thread = ring.add_thread(process, Tid(7), TimeNs(0), "t").unwrap();
    for now in 1..=9 {
        let module = ring
            .add_module(Module {
                process,
                path: format!("/lib/{now}.so"),
                ..Module::default()
            })
            .unwrap();
        let frame = Frame::Native {
            module,
            address: RelativeAddress(1),
            function: None,
        };
        let frame = ring.intern_frame(frame).unwrap();
        let stack = ring.intern_stack([frame], StackEnd::Root).unwrap();
        ring.span(&span(thread, now * S - S, now * S, S, stack))
            .unwrap();
        if now != 4 {
            ring.module_unmapped(module);
        }
        tick(&mut ring, now * S, &[thread]);
        ring.sweep(&[]);
    }
    let modules = trace(&ring.snapshot(Vec::new()), 7 * S).tables.modules;
    let paths: Vec<&str> = modules.iter().map(|m| m.path.as_str()).collect();
    assert_eq!(paths, ["/lib/4.so", "/lib/8.so", "/lib/9.so"]);
}

/// Check that a cut has the readings of counters and of the kernel's accounts after it, of counters every value, in a
/// file, too.
#[test]
fn counters() {
    let mut ring = ring(3, usize::MAX);
    let _other = process(&mut ring, 6);
    let process = process(&mut ring, 7);
    let thread = ring.add_thread(process, Tid(7), TimeNs(0), "t").unwrap();
    let names = ["osd.op", "osd.op_latency"].map(|name| CounterName {
        name: name.into(),
        timed: name.ends_with("latency"),
    });
    let ids = names
        .each_ref()
        .map(|name| ring.intern_counter(name).unwrap());
    for n in 1..=5_u64 {
        let values = [10 * n, 7].map(|count| CounterValue { count, time_ns: 0 });
        let reading = CounterReading {
            process,
            time: TimeNs(n * S - MS),
            values: ids.into_iter().zip(values).collect(),
        };
        ring.counters(&reading).unwrap();
        let accounts = AccountsReading {
            source: 0,
            time: reading.time,
            json: n.to_string(),
        };
        ring.accounts(accounts).unwrap();
        tick(&mut ring, n * S, &[thread]);
    }
    let trace = trace(&ring.snapshot(Vec::new()), 3 * S);
    let facts = &trace.tables.origins.counters;
    assert_eq!(facts.names, names);
    let readings: Vec<_> = facts
        .readings
        .iter()
        .map(|r| (r.time.0, r.values.len()))
        .collect();
    // The first is between those around the cut. In a file the others have only what changed.
    assert_eq!(readings, [(0, 2), (S - MS, 1), (2 * S - MS, 1)]);
    let counts = facts.readings.iter().map(|r| r.values[0].1.count);
    assert_eq!(counts.collect::<Vec<_>>(), [30, 40, 50]);
    assert_eq!(
        trace.tables.processes[facts.readings[0].process.0 as usize].pid,
        Pid(7)
    );
    let accounts = trace.tables.origins.accounts.iter();
    let accounts: Vec<_> = accounts.map(|r| (r.time.0, r.json.as_str())).collect();
    assert_eq!(accounts, [(S - MS, "4"), (2 * S - MS, "5")]);
}
