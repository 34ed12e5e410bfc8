//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

use std::path::PathBuf;

use clap::Args;
use msgr_crypto::text::observed_text;

use super::burst::observe_process;
use super::files::json_document;
use crate::failure::Failure;
use crate::open::write_output;

#[derive(Args, Debug)]
pub(crate) struct ObserveArgs {
    /// Process to observe
    pid: i32,
    #[command(flatten)]
    burst: BurstArgs,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How long to observe which threads.
#[derive(Args, Debug, Clone)]
pub(crate) struct BurstArgs {
    /// Length of the burst in seconds, 0.01 to 10; calls of the target are slower meanwhile
    #[arg(short, long, value_name = "SECS", default_value_t = 0.2, value_parser = seconds)]
    pub(super) duration: f64,
    /// Observe only threads whose name matches; may be given several times [default: msgr-worker-*,
    /// or all threads of a process that has none of that name]
    #[arg(long, value_name = "GLOB")]
    pub(super) threads: Vec<String>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.01..=10.0).contains(&n) => Ok(n),
        Ok(_) => Err("must be 0.01 to 10 seconds".into()),
        Err(_) => Err("not a number; 0.01 to 10 seconds are possible".into()),
    }
}

pub(super) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    let process = observe_process(args.pid, &args.burst)?;
    let out = match args.json {
        true => json_document("wcprof-crypto-observe", 1, &process)?,
        false => observed_text(&process),
    };
    write_output(args.output.as_ref(), out.as_bytes())
}
