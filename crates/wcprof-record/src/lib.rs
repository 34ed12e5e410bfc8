//! A recording: chains capture, unwinding and weights, and fills a trace.
//!
//! The sampler runs on a thread of its own and hands on batches; [`Recorder`] turns each batch into
//! unwound stacks and weighted spans of the trace. It may fall behind: the sampler never waits.
#![forbid(unsafe_code)]

mod clock;
mod counters;
mod debug_frames;
mod exited;
mod files;
mod folds;
mod images;
mod live_stack;
mod locks;
mod modules;
mod need;
mod process;
mod processes;
mod readings;
mod recorder;
mod registered;
mod replay;
mod shared;
mod snapshot;
mod stacks;
mod taking_in;
#[cfg(test)]
mod tests;
mod text_pages;
mod threads;
mod turns;
mod unmapped;
mod weights;

pub use files::{Handle, TargetFiles};
pub use modules::ModuleProblem;
pub use recorder::{Progress, Recorded, Recorder, RecorderOptions};
pub use snapshot::NamedSnapshot;
pub use unmapped::UnmappedFrames;
