//! Spans a second that the trace is written and read with: 70 mostly blocked threads at 100 Hz,
//! each of whose ticks is a span of its own (nothing merged).

use std::hint::black_box;
use std::io;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wcprof_trace::model::{Frame, Header, Process, Span, StackId, ThreadId};
use wcprof_trace::{TraceReader, TraceSink, TraceWriter};
use wcprof_types::{Avma, Pid, StackEnd, ThreadState, Tid, TimeNs};

const N_THREADS: u64 = 70;
const N_TICKS: u64 = 1000;
const TICK_NS: u64 = 10_000_000;

fn header() -> Header {
    Header {
        wcprof_version: "0.1.0".into(),
        engine: "procfs".into(),
        notes: Vec::new(),
        rate_hz: 100,
        host: "host".into(),
        kernel: "6.1".into(),
        n_cpus: 2,
        started_unix_ns: 0,
    }
}

fn spans(threads: &[ThreadId], stacks: &[StackId]) -> Vec<Span> {
    let mut spans = Vec::new();
    for tick in 0..N_TICKS {
        for (i, &thread) in threads.iter().enumerate() {
            let choice = (tick * 7 + i as u64 * 13) % stacks.len() as u64;
            spans.push(Span {
                thread,
                start: TimeNs(tick * TICK_NS),
                end: TimeNs((tick + 1) * TICK_NS),
                weight: TICK_NS,
                n_samples: 1,
                state: ThreadState::Blocked,
                wait: None,
                stack: stacks.get(choice as usize).copied(),
            });
        }
    }
    spans
}

fn write<W: io::Write>(sink: W) -> Result<(W, u64), wcprof_trace::TraceError> {
    let mut writer = TraceWriter::new(sink, &header())?;
    let process = writer.add_process(Process {
        pid: Pid(1),
        comm: "osd".into(),
        cmdline: Vec::new(),
        cgroup: String::new(),
        birth: String::new(),
    })?;
    let threads = (0..N_THREADS)
        .map(|i| writer.add_thread(process, Tid(i as i32 + 1), TimeNs(0), "worker"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut stacks = Vec::new();
    for leaf in 0..200_u64 {
        let frames = (0..30)
            .map(|depth| writer.intern_frame(Frame::Unmapped(Avma(depth * (leaf % 5 + 1) * 256))))
            .collect::<Result<Vec<_>, _>>()?;
        stacks.push(writer.intern_stack(frames, StackEnd::Root)?);
    }
    let spans = spans(&threads, &stacks);
    for span in &spans {
        writer.span(black_box(span))?;
    }
    writer.flush()?;
    Ok((writer.into_inner(), spans.len() as u64))
}

fn trace(c: &mut Criterion) {
    let (file, n) = write(Vec::new()).unwrap();
    let mut group = c.benchmark_group("trace");
    group.throughput(Throughput::Elements(n));
    group.bench_function("write", |b| b.iter(|| write(io::sink()).unwrap()));
    group.bench_function("read", |b| {
        b.iter(|| {
            let reader = TraceReader::from_reader(file.as_slice()).unwrap();
            let mut weight = 0;
            reader.read(|_, span| weight += span.weight).unwrap();
            weight
        });
    });
    group.finish();
}

criterion_group!(benches, trace);
criterion_main!(benches);
