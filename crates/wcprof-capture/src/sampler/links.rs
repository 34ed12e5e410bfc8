//! What a running sampler is connected to, and how it ends.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use wcprof_types::{Avma, Tid};

use super::pulse::Stuck;
use crate::batch::TickBatch;
use crate::engine::SnapshotError;

/// Why sampling ended.
#[derive(Debug)]
pub enum SamplingEnd {
    /// The time asked for is over.
    Duration,
    /// The caller asked it to stop.
    Stopped,
    /// The last target has exited.
    TargetExited,
    /// The last target runs another program now.
    TargetExec,
    /// The receiver of batches is gone.
    ReceiverGone,
    /// The kernel does not let the sampler go on.
    Stuck(Stuck),
    /// A snapshot failed.
    Failed(SnapshotError),
}

/// What the recorder asks of the sampler.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SamplerRequest {
    /// Later copies of a thread's stack are to have another length.
    Stack(StackRequest),
    /// All that is known of threads that wait is to be handed on with the next tick, see [`TickCounts::is_settled`](crate::TickCounts::is_settled).
    Settle,
}

/// How much of a thread's stack its unwinding needs: more than was copied, or less.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StackRequest {
    /// Whose.
    pub tid: Tid,
    /// Bytes from the stack pointer upward; `None`: as many as before.
    pub bytes: Option<usize>,
    /// First address after what is needed, for stack pointers below it in the same mapping.
    pub end: Option<Avma>,
}

/// What a running sampler is connected to.
#[derive(Debug)]
pub struct SamplerLinks<'a> {
    /// Set to end the recording.
    pub stop: &'a AtomicBool,
    /// Ends the recording by itself after this long.
    pub duration: Option<Duration>,
    /// Where batches go.
    pub batches: SyncSender<TickBatch>,
    /// Requests of the recorder.
    pub requests: Receiver<SamplerRequest>,
}
