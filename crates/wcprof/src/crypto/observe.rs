//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

use std::path::PathBuf;

use clap::Args;
use msgr_crypto::text::observed_text;

use super::burst::{BurstArgs, observe_process};
use super::files::json_document;
use crate::args::TargetArgs;
use crate::failure::Failure;
use crate::open::write_output;
use crate::select;

#[derive(Args, Debug)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    burst: BurstArgs,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    targets: TargetArgs,
}

pub(super) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    let (pid, _keep) = select::one_process(&args.targets)?;
    let process = observe_process(pid, &args.burst)?;
    let out = match args.json {
        true => json_document("wcprof-crypto-observe", 2, &process)?,
        false => observed_text(&process),
    };
    write_output(args.output.as_ref(), out.as_bytes())
}
