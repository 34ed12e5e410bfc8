//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

use clap::Args;
use msgr_crypto::text::observed_text;

use super::burst::{BurstArgs, observe_process};
use super::files::json_document;
use crate::args::{OutputArgs, TargetArgs};
use crate::failure::Failure;
use crate::select;

#[derive(Args, Debug)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    burst: BurstArgs,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    out: OutputArgs,
    #[command(flatten)]
    targets: TargetArgs,
}

pub(super) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    args.out.check(&[])?;
    let (pid, _keep) = select::one_process(&args.targets)?;
    let process = observe_process(pid, &args.burst)?;
    let out = match args.json {
        true => json_document("wcprof-crypto-observe", 2, &process)?,
        false => observed_text(&process),
    };
    args.out.write(out.as_bytes())
}
