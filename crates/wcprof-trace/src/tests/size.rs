//! How much room a trace takes.

use wcprof_types::{Avma, Pid, StackEnd, ThreadState, Tid, TimeNs};

use super::{final_stats, header};
use crate::TraceSink;
use crate::TraceWriter;
use crate::model::{Frame, Process, Span, StackId, ThreadId};

const N_THREADS: usize = 70;
const N_TICKS: u64 = 1000;
const TICK_NS: u64 = 10_000_000;

fn blocked(thread: ThreadId, start: u64, end: u64, stack: StackId) -> Span {
    Span {
        thread,
        start: TimeNs(start),
        end: TimeNs(end),
        weight: end - start,
        n_samples: ((end - start) / TICK_NS) as u32,
        state: ThreadState::Blocked,
        wait: None,
        stack: Some(stack),
    }
}

/// Check that 70 threads at 100 Hz, a tenth of which run at each tick, take at most 3 bytes of
/// trace for each observation: 30-deep stacks, jitter, and a flush with all facts each second.
#[test]
fn mostly_blocked() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let process = writer
        .add_process(Process {
            pid: Pid(1),
            comm: "ceph-osd".into(),
            cmdline: Vec::new(),
            cgroup: String::new(),
            birth: String::new(),
        })
        .unwrap();
    let mut x = 7_u64;
    let mut random = |n: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (x >> 33) % n
    };
    let mut stacks = Vec::<StackId>::new();
    for _ in 0..300 {
        let frames: Vec<_> = (0..30)
            .map(|depth| {
                let address = (depth << 16) + random(1 + depth / 4) * 77;
                writer.intern_frame(Frame::Unmapped(Avma(address))).unwrap()
            })
            .collect();
        stacks.push(writer.intern_stack(frames, StackEnd::Root).unwrap());
    }
    let threads: Vec<ThreadId> = (0..N_THREADS)
        .map(|i| {
            let name = format!("worker-{i}");
            let tid = Tid(100 + i as i32);
            writer.add_thread(process, tid, TimeNs(0), &name).unwrap()
        })
        .collect();
    let mut blocked_since = [0_u64; N_THREADS];
    let mut before = 0;
    for tick in 1..=N_TICKS {
        let now = tick * TICK_NS + random(100_000);
        for (i, &thread) in threads.iter().enumerate() {
            // The first ten threads run at seven of ten ticks, the others never.
            let runs = i < 10 && random(10) < 7;
            if runs {
                if blocked_since[i] < before {
                    let start = blocked_since[i];
                    let span = blocked(thread, start, before, stacks[i]);
                    writer.span(&span).unwrap();
                }
                let interval = now - before;
                let (ran, waited) = (random(interval / 2), random(50_000));
                let choice = stacks[random(300) as usize];
                let mut span = |weight, state, stack| {
                    let span = Span {
                        thread,
                        start: TimeNs(before),
                        end: TimeNs(now),
                        weight,
                        n_samples: 1,
                        state,
                        wait: None,
                        stack,
                    };
                    writer.span(&span).unwrap();
                };
                span(ran, ThreadState::OnCpu, Some(choice));
                span(waited, ThreadState::Runnable, None);
                let rest = interval - ran - waited;
                span(rest, ThreadState::Blocked, Some(stacks[i]));
                blocked_since[i] = now;
            } else if tick == N_TICKS {
                let span = blocked(thread, blocked_since[i], now, stacks[i]);
                writer.span(&span).unwrap();
            }
            writer
                .thread_seen(thread, TimeNs(0), TimeNs(now), tick)
                .unwrap();
        }
        before = now;
        if tick % 100 == 0 {
            writer.set_stats(&final_stats()).unwrap();
            writer.flush().unwrap();
        }
    }
    writer.finish(&final_stats()).unwrap();
    let observations = N_THREADS as u64 * N_TICKS;
    let bytes = writer.len_bytes();
    assert!(
        bytes <= 3 * observations,
        "{:.2} bytes",
        bytes as f64 / observations as f64
    );
}
