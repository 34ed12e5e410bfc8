//! The engine `procfs` on a kernel that is too old for the engine `bpf`: run by `cargo xtask vmtest`, which boots one.

use std::hint;
use std::io::{Read, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use wcprof_types::{Avma, Tid};

use crate::probe::{Verdict, probe};
use crate::testing::{own_pid, skip};
use crate::{
    BpfError, EngineKind, Sampler, SamplerLinks, SamplerOptions, StackBytes, StackCopy, StartError,
    TickBatch,
};
use wcprof_host::Target;

/// Lies in the stack of the thread that waits.
const MARK: [u8; 16] = *b"a mark in memory";

fn own_tid() -> Tid {
    Tid(nix::unistd::gettid().as_raw())
}

fn sampler(engine: Option<EngineKind>) -> Result<Sampler, StartError> {
    let options = SamplerOptions {
        max_cpu_percent: 100,
        engine,
        kernel: Some(false),
        ..SamplerOptions::default()
    };
    Sampler::new(&[Arc::new(Target::open(own_pid()).unwrap())], options)
}

/// Whether the kernel lacks what the engine `bpf` calls; prints the skip.
fn is_old() -> bool {
    let refused = sampler(Some(EngineKind::Bpf));
    let is_old = matches!(refused, Err(StartError::Bpf(BpfError::NoHelper { .. })));
    if !is_old {
        skip("needs a kernel before Linux 5.15: `cargo xtask vmtest` boots one");
    }
    is_old
}

/// Check that what lacks is said, in `wcprof check` as in a recording, and `procfs` is chosen.
#[test]
fn reason() {
    if !is_old() {
        return;
    }
    let probe = probe(None).unwrap();
    let bpf = probe.lines.iter().find(|line| line.id == "bpf").unwrap();
    println!("bpf: {}", bpf.detail);
    assert_eq!(bpf.verdict, Verdict::Missing);
    assert!(bpf.detail.contains("Linux 5.15"), "{}", bpf.detail);
    assert_eq!(probe.choice, Some(EngineKind::Procfs));
    let sampler = sampler(None).unwrap();
    assert_eq!(sampler.engine(), EngineKind::Procfs);
    assert!(sampler.notes().iter().any(|note| note.contains("5.15")));
}

/// Whether a copy has the mark where the thread has it.
fn has_mark(stack: &StackBytes, batch: &TickBatch, at: Avma) -> bool {
    let copy = &batch.stacks[stack.bytes.clone()];
    let offset = at.0.checked_sub(stack.regs.sp.0).unwrap() as usize + stack.below;
    copy.get(offset..offset + MARK.len()) == Some(&MARK)
}

/// Waits for batches with the stack of a thread that waits and that of one that runs.
fn see_both(batches: &Receiver<TickBatch>, (waiting, mark): (Tid, Avma), running: Tid) {
    let (mut has_waiting, mut has_running) = (false, false);
    for batch in batches {
        for tick in batch.threads.iter().filter(|tick| tick.tid == waiting) {
            if let StackCopy::Copied(stack) = &tick.stack {
                has_waiting |= has_mark(stack, &batch, mark);
            }
        }
        let mut samples = batch.timer_samples.iter();
        has_running |= samples.any(|sample| sample.tid == running && sample.stack.is_some());
        if has_waiting && has_running {
            return;
        }
    }
    panic!("sampling ended before both were seen: waiting {has_waiting}, running {has_running}");
}

/// Check that stacks of a thread that waits and of one that runs are seen.
#[test]
fn stacks() {
    if !is_old() {
        return;
    }
    let (mut reader, writer) = pipe().unwrap();
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || {
        let mark = hint::black_box(MARK);
        let at = Avma(mark.as_ptr().addr() as u64);
        tell.send((own_tid(), at)).unwrap();
        let _ = reader.read(&mut [0]);
        hint::black_box(&mark);
    });
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, (tell_spinner, told_spinner)) = (Arc::clone(&stop), mpsc::channel());
    let running = thread::spawn(move || {
        tell_spinner.send(own_tid()).unwrap();
        while !stopped.load(Ordering::Relaxed) {
            hint::spin_loop();
        }
    });
    let (batches, received) = mpsc::sync_channel(64);
    let (_requests, requests) = mpsc::channel();
    let sampling = Arc::clone(&stop);
    let sampler = thread::spawn(move || {
        sampler(None).unwrap().run(&SamplerLinks {
            stop: &sampling,
            duration: None,
            batches,
            requests,
        })
    });
    see_both(
        &received,
        told.recv().unwrap(),
        told_spinner.recv().unwrap(),
    );
    stop.store(true, Ordering::Relaxed);
    drop(writer);
    for thread in [waiting, running] {
        thread.join().unwrap();
    }
    println!("sampling ended: {:?}", sampler.join().unwrap());
}
