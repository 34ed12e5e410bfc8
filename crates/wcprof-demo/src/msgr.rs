//! Messenger threads: sleep in `epoll_wait`, decrypt what arrived, queue operations.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::event::Event;
use crate::ops::Op;
use crate::queue::Queue;
use crate::wire::{EncryptedFrame, FrameAssembler, encrypt_frame};

/// Distinct frames of a connection: 1 MiB, so that they do not stay in the first cache.
const N_FRAMES: u64 = 64;
/// Frames that one arrival brings to each thread.
const FRAMES_PER_ARRIVAL: usize = 80;
/// Frames whose data one operation carries on.
const FRAMES_PER_OP: usize = 16;

/// One messenger thread's connection, as other threads see it.
pub(crate) struct Worker {
    index: usize,
    arrived: Event,
    /// An arrival is not handled yet.
    busy: AtomicBool,
    stop: AtomicBool,
}

impl Worker {
    pub(crate) fn new(index: usize) -> Result<Self> {
        Ok(Self {
            index,
            arrived: Event::new()?,
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        })
    }

    /// Lets messages arrive if it has handled the ones before.
    pub(crate) fn messages_arrive(&self) -> Result<()> {
        match self.busy.swap(true, Ordering::AcqRel) {
            true => Ok(()),
            false => self.arrived.set(),
        }
    }

    pub(crate) fn stop(&self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.arrived.set()
    }
}

/// A messenger thread, until its worker is stopped.
#[inline(never)]
pub(crate) fn entry(worker: &Worker, ops: &Queue<Op>) -> Result<()> {
    let first = worker.index as u64 * N_FRAMES;
    let frames = (first..first + N_FRAMES).map(encrypt_frame);
    let mut connection = Connection {
        frames: frames.collect::<Result<_, _>>()?,
        next: 0,
        assembler: FrameAssembler::new()?,
    };
    loop {
        worker.arrived.event_wait()?;
        if worker.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        worker.arrived.reset()?;
        connection
            .handle_read_frames(ops)
            .context("failed to decrypt a frame with libcrypto")?;
        worker.busy.store(false, Ordering::Release);
    }
}

struct Connection {
    frames: Vec<EncryptedFrame>,
    next: usize,
    assembler: FrameAssembler,
}

impl Connection {
    #[inline(never)]
    fn handle_read_frames(&mut self, ops: &Queue<Op>) -> Result<()> {
        for _ in 0..FRAMES_PER_ARRIVAL {
            self.next = (self.next + 1) % self.frames.len();
            let frame = &self.frames[self.next];
            let number = self.assembler.disassemble_preamble(frame)?;
            let data = self.assembler.disasm_remaining_secure_rev1(frame)?;
            if self.next.is_multiple_of(FRAMES_PER_OP) {
                ops.push(Op::new(number, data));
            }
        }
        Ok(())
    }
}
