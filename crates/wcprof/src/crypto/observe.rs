//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

mod live;
mod text;

use std::path::PathBuf;

use clap::Args;
use msgr_crypto::observed::{Observation, Role};
use msgr_crypto::shapes::{Shape, Side, builtin};
use serde::Serialize;
use wcprof_findings::printable_json;

use crate::failure::{Exit, Failure};
use crate::open::write_output;

pub(crate) use live::watch;

#[derive(Args, Debug)]
pub(crate) struct ObserveArgs {
    /// Process to observe
    pub(crate) pid: i32,
    #[command(flatten)]
    pub(crate) burst: BurstArgs,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How long and whom.
#[derive(Args, Debug, Clone)]
pub(crate) struct BurstArgs {
    /// Length of the burst in seconds, 0.01 to 10; calls of the target are slower meanwhile
    #[arg(short, long, value_name = "SECS", default_value_t = 0.2, value_parser = seconds)]
    pub(crate) duration: f64,
    /// Observe only threads whose name matches; may be given several times [default: msgr-worker-*,
    /// or all threads of a process that has none of that name]
    #[arg(long, value_name = "GLOB")]
    pub(crate) threads: Vec<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.01..=10.0).contains(&n) => Ok(n),
        Ok(_) => Err("must be 0.01 to 10 seconds".into()),
        Err(_) => Err("not a number; 0.01 to 10 seconds are possible".into()),
    }
}

/// What is known of a process.
#[derive(Debug, Serialize)]
pub(crate) struct Watched {
    /// The process.
    pub(crate) pid: i32,
    /// Its name.
    pub(crate) comm: String,
    /// Where the shapes come from.
    #[serde(flatten)]
    pub(crate) source: Source,
}

#[derive(Debug, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub(crate) enum Source {
    /// Its calls were seen.
    Live {
        burst: Box<BurstFacts>,
        observation: Box<Observation>,
    },
    /// They were not: what the protocol and other clusters say.
    Protocol {
        /// Why nothing was seen.
        reason: String,
        shapes: Vec<ProtocolShape>,
    },
}

#[derive(Debug, Serialize)]
pub(crate) struct ProtocolShape {
    name: String,
    side: Side,
    calls: String,
    origin: String,
}

/// A burst and its cost.
#[derive(Debug, Serialize)]
pub(crate) struct BurstFacts {
    /// Files with OpenSSL that were probed, by their paths in the target.
    pub(crate) libraries: Vec<String>,
    /// How long calls were seen, seconds.
    pub(crate) seconds: f64,
    /// How long breakpoints were in the target, seconds.
    pub(crate) trapped_seconds: f64,
    /// Threads observed.
    pub(crate) n_threads: usize,
    /// Threads of the process that were not: other names, or too many.
    pub(crate) n_threads_not_observed: usize,
    /// Threads born meanwhile.
    pub(crate) n_threads_born: usize,
    /// Calls that the kernel counted.
    pub(crate) n_hits: u64,
    /// Of these, calls without a sample.
    pub(crate) n_missing: u64,
    /// Records that were not understood.
    pub(crate) n_malformed: u64,
    /// `time`, `full` or `exited`.
    pub(crate) end: &'static str,
    /// `verified`, `exited`, `unknown` or `differs`.
    pub(crate) removal: &'static str,
    /// Nanoseconds that a call took longer, measured on wcprof itself.
    pub(crate) ns_per_hit: f64,
    /// The same while the breakpoints are put in and out and calls are not seen.
    pub(crate) ns_per_silent_hit: f64,
    /// CPU time that the burst cost the target, seconds.
    pub(crate) cost_seconds: f64,
}

impl Watched {
    /// Shapes for the model: those seen, or those that such a process has by the protocol.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        match &self.source {
            Source::Live { observation, .. } => observation.model_shapes(40),
            Source::Protocol { .. } => shapes_by_protocol(Role::of_process(&self.comm)),
        }
    }
}

/// The published frames that a process of this role sends and receives.
pub(crate) fn shapes_by_protocol(role: Role) -> Vec<Shape> {
    let mut shapes = builtin();
    shapes.retain(|shape| {
        let is_reply = shape.name.contains("reply");
        match (role, shape.side) {
            (Role::Client, Side::Rx) | (Role::Osd, Side::Tx) => is_reply,
            (Role::Client, Side::Tx) | (Role::Osd, Side::Rx) => !is_reply,
            (Role::Other, _) => true,
        }
    });
    shapes
}

pub(crate) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    let watched = watch(args.pid, &args.burst)?;
    let out = match args.json {
        true => json(&watched)?,
        false => text::text(&watched),
    };
    write_output(args.output.as_ref(), out.as_bytes())
}

fn json(watched: &Watched) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        version: u32,
        #[serde(flatten)]
        watched: &'a Watched,
    }
    let document = Document {
        schema: "wcprof-crypto-observe",
        version: 1,
        watched,
    };
    printable_json(&document).map_err(|error| Failure::new(Exit::Failure, error))
}
