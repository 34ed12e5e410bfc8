//! `wcprof crypto advise`: a process or a trace, and costs of its library, to a sentence and its table.

use std::path::Path;

use anyhow::anyhow;
use msgr_crypto::advice::{
    Advice, CalibrationSource, Costs, Subject, TraceShare, TraceSums, newer_kernel,
};
use msgr_crypto::calibration::Calibration;
use msgr_crypto::text::advice_text;
use wcprof_profile::model::{FunctionId, Profile, State};

use crate::burst::observe_process;
use crate::files::{json_document, open_library, read_calibration};
use crate::kept::Keeping;
use crate::measure::measure;
use crate::sandbox::calibrate_process;
use wcprof_cli::crypto::AdviseArgs;
use wcprof_cli::output::print;
use wcprof_cli::profile_of;
use wcprof_cli::select::{self, One};
use wcprof_cli::{Failure, defaults};

pub(crate) fn run(args: &AdviseArgs) -> Result<(), Failure> {
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
    let keeping = Keeping::Reuse.by(&args.cache);
    match (&args.calibration, chosen) {
        (Some(path), _) => Ok((read_calibration(path)?, CalibrationSource::Saved)),
        (None, One::Process(pid)) => Ok((
            calibrate_process(*pid, keeping)?,
            CalibrationSource::Process,
        )),
        (None, One::File(_)) => {
            let library = open_library(None)?;
            wcprof_cli::message!(
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
        sums.worker_ns = sums.worker_ns.saturating_add(row.weight);
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
        sums.crypto_ns = sums.crypto_ns.saturating_add(row.weight);
        sums.n_samples += row.n_samples;
        process.get_or_insert(profile.process_title(thread));
        let leaf = names.next_back();
        if leaf.is_some_and(|name| name.starts_with("_aesni_ctr32_ghash_6x")) {
            sums.kernel_ns = sums.kernel_ns.saturating_add(row.weight);
        }
    }
    let first = || Some(profile.process_title(profile.threads.first()?));
    (process.or_else(first).unwrap_or_default(), sums)
}
