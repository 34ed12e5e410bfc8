//! `wcprof crypto calibrate`: a libcrypto to its costs, as text or JSON.

use std::fmt::Write;

use anyhow::anyhow;
use msgr_crypto::calibration::Calibration;
use msgr_crypto::text::{calibration_text, verify_text};
use msgr_crypto::verify::verify;
use wcprof_text::terminal_name;

use crate::files::{open_library, read_shapes};
use crate::kept::Keeping;
use crate::measure::measure;
use crate::sandbox::calibrate_process;
use wcprof_cli::Failure;
use wcprof_cli::crypto::CalibrateArgs;
use wcprof_cli::output::{check, print, write_whole};
use wcprof_cli::select;

pub(crate) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        check(path, args.force)?;
    }
    let shapes = read_shapes(args.shapes.as_deref())?;
    let keeping = Keeping::Renew.by(&args.cache);
    let (library, calibration) = match args.targets.is_empty() {
        false if args.lib.is_some() || args.verify => {
            let error = anyhow!("--lib and --verify are about a library file, not a process");
            return Err(Failure::usage(error));
        }
        false => {
            let (pid, _keep) = select::one_process(&args.targets)?;
            (None, calibrate_process(pid, keeping)?)
        }
        true => {
            let library = open_library(args.lib.as_deref())?;
            let calibration = measure(&library, keeping)?;
            (Some(library), calibration)
        }
    };
    if let Some(path) = &args.output {
        write_whole(path, args.force, json(&calibration)?.as_bytes())?;
    }
    let mut out = match args.json {
        true => json(&calibration)?,
        false => calibration_text(&calibration),
    };
    if let Some(library) = library.as_ref().filter(|_| args.verify) {
        let checked = verify(library, &calibration, &shapes).map_err(anyhow::Error::new)?;
        let _ = write!(out, "\n{}", verify_text(&checked, &shapes));
    }
    if let Some(path) = args.output.as_ref().filter(|_| !args.json) {
        let _ = writeln!(
            out,
            "\nSaved. Next: wcprof crypto model --calibration {}",
            terminal_name(&path.display().to_string())
        );
    }
    print(out.as_bytes())
}

fn json(calibration: &Calibration) -> Result<String, Failure> {
    let json = calibration.to_json().map_err(anyhow::Error::new)?;
    Ok(json + "\n")
}
