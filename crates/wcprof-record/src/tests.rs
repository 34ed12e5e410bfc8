//! Batches made here to threads of a trace.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use wcprof_capture::{
    KernelStack, Since, StackCopy, TargetEnd, TargetId, ThreadCounters, ThreadTick, TickBatch,
};
use wcprof_host::Target;
use wcprof_host::sys::keep_capabilities;
use wcprof_trace::limits::MAX_WAITS;
use wcprof_trace::model::{Header, Trace};
use wcprof_trace::{TraceReader, TraceSink, TraceWriter};
use wcprof_types::{Avma, FdKind, FdTarget, Pid, Sched, Tid, Wait};

use crate::{Recorder, RecorderOptions};

const MS: u64 = 1_000_000;

fn own() -> Arc<Target> {
    Arc::new(Target::open(Pid(std::process::id() as i32)).unwrap())
}

/// A thread that runs, by its counters since it was born.
fn tick(target: u32, time: u64, since: Option<u64>, run_ns: u64) -> ThreadTick {
    ThreadTick {
        target: TargetId(target),
        tid: Tid(7),
        time,
        since: since.map(Since::Birth),
        comm: since.map(|_| "worker".to_owned()),
        sched: Sched::OnCpu,
        stop: None,
        counters: ThreadCounters {
            switches: 1,
            run_ns,
            ..ThreadCounters::default()
        },
        n_ticks: 1,
        wait: None,
        stack: StackCopy::None,
        kernel: KernelStack::None,
    }
}

/// Records this process.
fn recorder() -> Recorder<TraceWriter<Vec<u8>>> {
    let header = Header {
        n_cpus: 2,
        ..Header::default()
    };
    let writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let options = RecorderOptions {
        header,
        kernel: false,
        module_files: 1000,
        max_cpu_percent: 20,
        full_command_lines: false,
        requests: channel().0,
    };
    Recorder::new(&[own()], writer, options).unwrap()
}

/// The same, at time 1 ms.
fn begun() -> Recorder<TraceWriter<Vec<u8>>> {
    let mut recorder = recorder();
    let batch = TickBatch {
        time: MS,
        ..TickBatch::default()
    };
    recorder.batch(&batch).unwrap();
    recorder
}

/// The trace of these batches, the first of which begins at time 1 ms.
fn trace(batches: &[TickBatch]) -> Trace {
    let mut recorder = begun();
    for batch in batches {
        recorder.batch(batch).unwrap();
    }
    let bytes = recorder.finish("test").writer.into_inner();
    let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
    reader.read_all().unwrap().0
}

/// Length of each thread, and the sum of its weights, ms.
fn threads(trace: &Trace) -> Vec<(u64, u64)> {
    let mut sums = vec![0; trace.tables.threads.len()];
    for span in &trace.spans {
        sums[span.thread.0 as usize] += span.weight;
    }
    let of = |(thread, sum): (&wcprof_trace::model::Thread, u64)| {
        ((thread.end.0 - thread.start.0) / MS, sum / MS)
    };
    trace.tables.threads.iter().zip(sums).map(of).collect()
}

/// Check that a number which is used again within a batch is of two threads, each with its own time.
#[test]
fn number_used_again() {
    let target = TargetId(0);
    let batch = TickBatch {
        time: 60 * MS,
        threads: vec![
            tick(0, 20 * MS, Some(10 * MS), 10 * MS),
            tick(0, 30 * MS, None, 20 * MS),
            tick(0, 50 * MS, Some(45 * MS), 5 * MS),
            tick(0, 60 * MS, None, 15 * MS),
        ],
        exited: vec![(2, target, Tid(7))],
        ..TickBatch::default()
    };
    assert_eq!(threads(&trace(&[batch])), [(20, 20), (15, 15)]);
}

/// Check that of hundreds of processes one after the other those that are folded are one thread with the time of
/// all of them.
#[test]
fn folded() {
    let life = |n: u32| {
        let time = u64::from(n) * 10 * MS;
        TickBatch {
            time: time + 5 * MS,
            joined: vec![(TargetId(n), own())],
            threads: vec![
                tick(n, time + 4 * MS, Some(time), 4 * MS),
                tick(n, time + 5 * MS, None, 5 * MS),
            ],
            exited: vec![(2, TargetId(n), Tid(7))],
            ended: vec![(TargetId(n), TargetEnd::Exited, time + 5 * MS)],
            ..TickBatch::default()
        }
    };
    let batches: Vec<TickBatch> = (1..=300).map(life).collect();
    let trace = trace(&batches);
    let n_folded: Vec<u32> = trace.tables.origins.folded.values().copied().collect();
    assert_eq!(n_folded, [236]);
    // The target, 64 of its children, and the others.
    assert_eq!(trace.tables.processes.len(), 66);
    let all = threads(&trace);
    assert_eq!(all.len(), 65);
    assert!(all[..64].iter().all(|thread| *thread == (5, 5)));
    assert_eq!(all[64], (235 * 10 + 5, 236 * 5));
}

/// Check that a process whose mappings may not be read is recorded without its modules, and that this is said: the
/// others are recorded, too.
#[test]
fn unreadable() {
    let child = Command::new("cat").uid(65534).stdin(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED unreadable: only root can start programs as others");
        return;
    };
    let pid = Pid(child.id() as i32);
    let target = Arc::new(Target::open(pid).unwrap());
    let batch = TickBatch {
        time: MS,
        joined: vec![(TargetId(1), target)],
        threads: vec![
            tick(1, 20 * MS, Some(10 * MS), 10 * MS),
            tick(0, 30 * MS, Some(20 * MS), 10 * MS),
        ],
        ..TickBatch::default()
    };
    let record = move || {
        let mut recorder = recorder();
        keep_capabilities(0).unwrap();
        recorder.batch(&batch).unwrap();
        recorder
    };
    let recorder = thread::spawn(record).join().unwrap();
    let recorded = recorder.finish("test");
    drop(child.stdin.take());
    child.wait().unwrap();
    let path = format!("/proc/{pid}/maps");
    let problem = recorded.problems.iter().find(|found| found.path == path);
    let reason = &problem.unwrap().reason;
    assert!(reason.contains("not permitted"), "{reason}");
    let bytes = recorded.writer.into_inner();
    let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
    let trace = reader.read_all().unwrap().0;
    assert_eq!(trace.tables.threads.len(), 2);
}

/// Check that modules which did not answer are read again while a recording runs, once.
#[test]
fn modules_again() {
    let n_modules = |answers: bool| {
        let mut recorder = recorder();
        if !answers {
            let processes = recorder.processes.iter_mut();
            processes.for_each(|(_, process)| process.modules().forget_answers());
        }
        for n in 0..3 {
            recorder.flush().unwrap();
            let batch = TickBatch {
                time: (n + 1) * MS,
                ..TickBatch::default()
            };
            recorder.batch(&batch).unwrap();
        }
        let bytes = recorder.finish("test").writer.into_inner();
        let reader = TraceReader::from_reader(bytes.as_slice()).unwrap();
        reader.read_all().unwrap().0.tables.modules.len()
    };
    assert_eq!(n_modules(false), 2 * n_modules(true));
}

/// Check that a recording goes on when a table is nearly full: a wait has neither its file nor its lock then, and that is
/// said.
#[test]
fn full_of_waits() {
    let futex = |n: usize| Wait {
        futex: Some(Avma(n as u64)),
        ..Wait::default()
    };
    let mut recorder = begun();
    let mut n = 0;
    while recorder.writer.room().waits {
        recorder.writer.intern_wait(futex(n)).unwrap();
        n += 1;
    }
    assert!(n > MAX_WAITS / 2 && recorder.crowded().is_none());
    let fd = FdTarget {
        kind: FdKind::Regular,
        path: "/a/new/one".to_owned(),
    };
    let waits = |time: u64, since| ThreadTick {
        sched: Sched::Blocked,
        stack: StackCopy::NoUserStack,
        wait: Some(Wait {
            fd: Some(fd.clone()),
            ..futex(n)
        }),
        ..tick(0, time, since, 0)
    };
    recorder
        .batch(&TickBatch {
            time: 20 * MS,
            threads: vec![waits(10 * MS, Some(MS)), waits(20 * MS, None)],
            ..TickBatch::default()
        })
        .unwrap();
    assert!(recorder.crowded().is_some());
    let bytes = recorder.finish("test").writer.into_inner();
    let trace = TraceReader::from_reader(bytes.as_slice()).unwrap();
    let trace = trace.read_all().unwrap().0;
    let of_spans = trace.spans.iter().filter_map(|span| span.wait);
    let bare: Vec<&Wait> = of_spans
        .map(|id| &trace.tables.waits[id.0 as usize])
        .collect();
    let is_bare = |wait: &&Wait| {
        wait.futex.is_none() && wait.fd.as_ref().is_some_and(|fd| fd.path.is_empty())
    };
    assert!(!bare.is_empty() && bare.iter().all(is_bare), "{bare:?}");
}
