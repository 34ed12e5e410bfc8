//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

use std::path::PathBuf;

use clap::Args;
use msgr_crypto::text::observed_text;

use super::burst::{BurstArgs, observe_process};
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

pub(super) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    let process = observe_process(args.pid, &args.burst)?;
    let out = match args.json {
        true => json_document("wcprof-crypto-observe", 1, &process)?,
        false => observed_text(&process),
    };
    write_output(args.output.as_ref(), out.as_bytes())
}
