//! `wcprof crypto advise`: a process or a trace, and costs of its library, to a sentence and its table.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use msgr_crypto::advice::{
    Advice, CalibrationSource, Costs, Subject, TraceShare, TraceSums, newer_kernel,
};
use msgr_crypto::calibration::Calibration;
use msgr_crypto::text::advice_text;
use wcprof_profile::model::{FunctionId, Profile, State};

use super::burst::{BurstArgs, observe_process};
use super::files::{json_document, open_library, read_calibration};
use super::kept::{CacheArgs, Keeping};
use super::measure::measure;
use super::sandbox::calibrate_process;
use crate::args::{TargetArgs, defaults};
use crate::failure::Failure;
use crate::open::profile_of;
use crate::output::print;
use crate::select::{self, One};

#[derive(Args, Debug)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    burst: BurstArgs,
    /// Calibration of the process's library, from `wcprof crypto calibrate -o` [default: the kept one, else measured now]
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Calibration of another library to compare with, from `wcprof crypto calibrate --lib PATH -o`
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// Machine-readable output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

pub(super) fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let (chosen, _keep) = select::one(&args.targets)?;
    let other = args.other.as_deref().map(read_calibration).transpose()?;
    let subject = match &chosen {
        One::Process(pid) => Subject::Process(observe_process(*pid, &args.burst)?),
        One::File(trace) => Subject::Trace(trace_share(trace)?),
    };
    if subject.shapes().is_empty() {
        let error = anyhow!("no frames of the messenger were seen");
        let hint =
            "the process is idle, or not in secure mode: try under load, or with a longer -d";
        return Err(Failure::from(error).hint(hint));
    }
    let (calibration, source) = calibration(args, &chosen)?;
    let costs = Costs {
        calibration: &calibration,
        source,
        other: other.as_ref(),
        newer_kernel: newer_kernel(&calibration),
    };
    let advice = Advice::new(subject, costs);
    let out = match args.json {
        true => json_document("wcprof-crypto-advise", 2, &advice)?,
        false => advice_text(&advice, &calibration),
    };
    print(out.as_bytes())
}

fn calibration(
    args: &AdviseArgs,
    chosen: &One,
) -> Result<(Calibration, CalibrationSource), Failure> {
    let keeping = args.cache.keeping(Keeping::Reuse);
    match (&args.calibration, chosen) {
        (Some(path), _) => Ok((read_calibration(path)?, CalibrationSource::Saved)),
        (None, One::Process(pid)) => Ok((
            calibrate_process(*pid, keeping)?,
            CalibrationSource::Process,
        )),
        (None, One::File(_)) => {
            let library = open_library(None)?;
            message!(
                "wcprof: a trace does not hold a library, so the costs are those of this system's, which may be another; \
                 --calibration takes a saved one"
            );
            Ok((measure(&library, keeping)?, CalibrationSource::System))
        }
    }
}

fn trace_share(path: &Path) -> Result<TraceShare, Failure> {
    let profile = profile_of(path, None, &defaults())?;
    let (process, sums) = trace_sums(&profile);
    Ok(TraceShare::new(process, sums))
}

/// On-CPU time of the messenger's threads, and the process with update calls (or the first one).
fn trace_sums(profile: &Profile) -> (&str, TraceSums) {
    let mut sums = TraceSums::default();
    let mut process = None;
    for row in profile.rows.iter().filter(|row| row.state == State::OnCpu) {
        let thread = &profile.threads[row.thread];
        if !thread.comm.starts_with("msgr-worker") {
            continue;
        }
        sums.worker_ns += row.weight;
        let stack = row.stack.map(|id| &profile.stacks[id.0 as usize]);
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let name = |id: &FunctionId| profile.functions[id.0 as usize].name.as_str();
        let mut names = frames.iter().map(name);
        let is_update = |name: &str| {
            name.starts_with("EVP_DecryptUpdate") || name.starts_with("EVP_EncryptUpdate")
        };
        if !names.clone().any(is_update) {
            continue;
        }
        sums.crypto_ns += row.weight;
        sums.n_samples += row.n_samples;
        process.get_or_insert(profile.process_title(thread));
        let leaf = names.next_back();
        if leaf.is_some_and(|name| name.starts_with("_aesni_ctr32_ghash_6x")) {
            sums.kernel_ns += row.weight;
        }
    }
    let first = || Some(profile.process_title(profile.threads.first()?));
    (process.or_else(first).unwrap_or_default(), sums)
}
