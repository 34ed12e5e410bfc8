//! `wcprof crypto observe`: a live process to the lengths of its update calls, frames and shapes, as
//! text or JSON.

use msgr_crypto::text::observed_text;

use crate::burst::observe_process;
use crate::files::json_document;
use wcprof_cli::Failure;
use wcprof_cli::crypto::ObserveArgs;
use wcprof_cli::select;

pub(crate) fn run(args: &ObserveArgs) -> Result<(), Failure> {
    args.out.check(&[])?;
    let (pid, _keep) = select::one_process(&args.targets)?;
    let process = observe_process(pid, &args.burst)?;
    let out = match args.json {
        true => json_document("wcprof-crypto-observe", 2, &process)?,
        false => observed_text(&process),
    };
    args.out.write(out.as_bytes())
}
