//! `wcprof crypto calibrate`: a libcrypto to its costs, as text or JSON.

use std::fmt::Write;

use msgr_crypto::calibration::{Calibration, CalibrationOptions, calibrate};
use msgr_crypto::text::{calibration_text, verify_text};
use msgr_crypto::verify::verify;
use msgr_crypto_ffi::Library;
use wcprof_text::terminal_name;

use super::CalibrateArgs;
use super::files::{open_library, read_shapes};
use super::sandbox::calibrate_process;
use crate::failure::{Exit, Failure};
use crate::open::write_output;

/// Above this share of disturbed measurements there is a warning.
const MAX_DISTURBED: f64 = 0.2;

pub(super) fn run(args: &CalibrateArgs) -> Result<(), Failure> {
    let shapes = read_shapes(args.shapes.as_deref())?;
    let (library, calibration) = match args.pid {
        Some(pid) => (None, calibrate_process(pid)?),
        None => {
            let library = open_library(args.lib.as_deref())?;
            let calibration = measure(&library)?;
            (Some(library), calibration)
        }
    };
    if let Some(path) = &args.output {
        write_output(Some(path), json(&calibration)?.as_bytes())?;
    }
    let mut out = match args.json {
        true => json(&calibration)?,
        false => calibration_text(&calibration),
    };
    if let Some(library) = library.as_ref().filter(|_| args.verify) {
        let checked = verify(library, &calibration, &shapes)
            .map_err(|error| Failure::new(Exit::Failure, error))?;
        let _ = write!(out, "\n{}", verify_text(&checked, &shapes));
    }
    if let Some(path) = args.output.as_ref().filter(|_| !args.json) {
        let _ = writeln!(
            out,
            "\nSaved. Next: wcprof crypto model --calibration {}",
            terminal_name(&path.display().to_string())
        );
    }
    write_output(None, out.as_bytes())
}

/// Calibrates, and announces it, since it takes seconds.
pub(super) fn measure(library: &Library) -> Result<Calibration, Failure> {
    message!(
        "wcprof: measuring {}: a second, longer beside other work",
        terminal_name(library.version())
    );
    let calibration = calibrate(library, &CalibrationOptions::default())
        .map_err(|error| Failure::new(Exit::Failure, error))?;
    if calibration.disturbed_share > MAX_DISTURBED {
        message!(
            "wcprof: other work slowed this core during {:.0} % of the measurements, so they are less exact; \
             measure again on a calmer machine",
            100.0 * calibration.disturbed_share
        );
    }
    Ok(calibration)
}

fn json(calibration: &Calibration) -> Result<String, Failure> {
    let mut json = calibration
        .to_json()
        .map_err(|error| Failure::new(Exit::Failure, error))?;
    json.push('\n');
    Ok(json)
}
