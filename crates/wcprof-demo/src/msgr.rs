//! Messenger threads: sleep in `epoll_wait`, decrypt what arrived, queue operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

use crate::error::DemoError;
use crate::ops::Op;
use crate::queue::Queue;
use crate::wire::{EncryptedFrame, FrameAssembler, encrypt_frame};

/// Distinct frames of a connection: 1 MiB, so that they do not stay in the first cache.
const N_FRAMES: u64 = 64;
/// Frames that one arrival brings to each thread.
const FRAMES_PER_ARRIVAL: usize = 80;
/// Frames whose data one operation carries on.
const FRAMES_PER_OP: usize = 16;

/// The pool's shared side.
pub(crate) struct Messenger {
    workers: Vec<Arc<Worker>>,
}

/// One messenger thread's connection.
pub(crate) struct Worker {
    index: usize,
    arrived: EventFd,
    /// An arrival is not handled yet.
    busy: AtomicBool,
    stop: AtomicBool,
}

impl Messenger {
    pub(crate) fn new(n_workers: usize) -> Result<Self, DemoError> {
        let workers = (0..n_workers).map(|index| {
            Ok(Arc::new(Worker {
                index,
                arrived: EventFd::new().map_err(DemoError::sys("create an eventfd"))?,
                busy: AtomicBool::new(false),
                stop: AtomicBool::new(false),
            }))
        });
        Ok(Self {
            workers: workers.collect::<Result<_, DemoError>>()?,
        })
    }

    pub(crate) fn workers(&self) -> Vec<Arc<Worker>> {
        self.workers.clone()
    }

    /// Let messages arrive at every thread that has handled the ones before.
    pub(crate) fn messages_arrive(&self) -> Result<(), DemoError> {
        self.workers
            .iter()
            .filter(|w| !w.busy.swap(true, Ordering::AcqRel))
            .try_for_each(|w| w.ring())
    }

    pub(crate) fn stop(&self) -> Result<(), DemoError> {
        self.workers.iter().try_for_each(|w| {
            w.stop.store(true, Ordering::Release);
            w.ring()
        })
    }
}

impl Worker {
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn ring(&self) -> Result<(), DemoError> {
        self.arrived
            .write(1)
            .map(|_| ())
            .map_err(DemoError::sys("write to an eventfd"))
    }
}

/// A messenger thread, until its worker is told to stop.
#[inline(never)]
pub(crate) fn entry(worker: &Worker, ops: &Queue<Op>) -> Result<(), DemoError> {
    let first = worker.index as u64 * N_FRAMES;
    let frames = (first..first + N_FRAMES)
        .map(encrypt_frame)
        .collect::<Result<Vec<_>, _>>()?;
    let mut connection = Connection {
        frames,
        next: 0,
        assembler: FrameAssembler::new()?,
    };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
        .map_err(DemoError::sys("create an epoll instance"))?;
    epoll
        .add(&worker.arrived, EpollEvent::new(EpollFlags::EPOLLIN, 0))
        .map_err(DemoError::sys("add to an epoll instance"))?;
    loop {
        event_wait(&epoll)?;
        if worker.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        worker
            .arrived
            .read()
            .map_err(DemoError::sys("read an eventfd"))?;
        connection.handle_read_frames(ops)?;
        worker.busy.store(false, Ordering::Release);
    }
}

#[inline(never)]
fn event_wait(epoll: &Epoll) -> Result<(), DemoError> {
    match epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(source) => Err(DemoError::sys("wait for events")(source)),
    }
}

struct Connection {
    frames: Vec<EncryptedFrame>,
    next: usize,
    assembler: FrameAssembler,
}

impl Connection {
    #[inline(never)]
    fn handle_read_frames(&mut self, ops: &Queue<Op>) -> Result<(), DemoError> {
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
