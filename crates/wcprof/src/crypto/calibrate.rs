//! `wcprof crypto calibrate`: a libcrypto to its costs, as text or JSON.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use msgr_crypto::calibration::Calibration;
use msgr_crypto::text::{calibration_text, verify_text};
use msgr_crypto::verify::verify;
use wcprof_text::terminal_name;

use super::files::{open_library, read_shapes};
use super::kept::{CacheArgs, Keeping};
use super::measure::measure;
use super::sandbox::calibrate_process;
use crate::args::{ForceArgs, TargetArgs};
use crate::failure::Failure;
use crate::output::{check, print, write_whole};
use crate::select;

#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Library to measure; its code runs with your rights [default: the system's libcrypto]
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// Save the calibration (JSON) for `wcprof crypto model`
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// Print the calibration as JSON
    #[arg(long)]
    json: bool,
    /// Also run every frame by every strategy and print the error of the model (a minute)
    #[arg(long, conflicts_with = "json")]
    verify: bool,
    /// Frames for --verify (TOML, see docs/crypto.md) [default: those of real clusters]
    #[arg(long, value_name = "FILE", requires = "verify")]
    shapes: Option<PathBuf>,
    #[command(flatten)]
    targets: TargetArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

pub(super) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    if let Some(path) = &args.output {
        check(path, args.force)?;
    }
    let shapes = read_shapes(args.shapes.as_deref())?;
    let keeping = args.cache.keeping(Keeping::Renew);
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
