//! A recording: chains capture, unwinding and weights, and fills a trace.
//!
//! The sampler runs on a thread of its own and hands on batches; [`Recorder`] turns each batch into
//! unwound stacks and weighted spans of the trace. It may fall behind: the sampler never waits.
#![forbid(unsafe_code)]

mod exited;
mod kept;
mod live_stack;
mod locks;
mod modules;
mod need;
mod process;
mod recorder;
mod replay;
mod threads;

pub use kept::Kept;
pub use modules::{Handle, ModuleProblem, TargetFiles};
pub use process::UnmappedFrames;
pub use recorder::{Progress, RecordError, Recorded, Recorder, RecorderOptions};
