//! A libcrypto to its calibration: the one that is kept, or a new one, with a word to the user before, and a
//! warning if it is not exact.

use msgr_crypto::calibration::{Calibration, CalibrationOptions, MAX_SECONDS, calibrate};
use msgr_crypto_ffi::Library;
use wcprof_text::terminal_name;

use crate::kept::{Keeping, Place};
use wcprof_cli::Failure;
use wcprof_cli::while_measuring;

/// The costs of a library that this process has loaded.
pub(crate) fn measure(library: &Library, keeping: Keeping) -> Result<Calibration, Failure> {
    let place = || Place::of_loaded(library);
    kept_or_new(place, keeping, &terminal_name(&library.version), || {
        let calibration = calibrate(library, &CalibrationOptions::default());
        Ok(calibration.map_err(anyhow::Error::new)?)
    })
}

/// The calibration that is kept in `place` if that will do, else what `work` measures of the library that
/// messages call `name`; that is kept then.
pub(crate) fn kept_or_new(
    place: impl FnOnce() -> Option<Place>,
    keeping: Keeping,
    name: &str,
    work: impl FnOnce() -> Result<Calibration, Failure>,
) -> Result<Calibration, Failure> {
    let place = (keeping != Keeping::Off).then(place).flatten();
    let reused = place.as_ref().filter(|_| keeping == Keeping::Reuse);
    if let Some((place, kept)) = reused.and_then(|place| Some((place, place.read()?))) {
        place.announce(&kept);
        return Ok(kept);
    }
    wcprof_cli::message!(
        "wcprof: measuring {name}: a second on a quiet machine, up to {MAX_SECONDS} s beside other work"
    );
    let line = |seconds| format!("measuring for {seconds} s, of at most about {MAX_SECONDS} s");
    let calibration = while_measuring(line, work)?;
    if calibration.is_noisy() {
        wcprof_cli::message!(
            "wcprof: other work disturbed {:.0} % of the measurements, so the figures are less exact; measure \
             again on a calmer machine",
            100.0 * calibration.disturbed_share
        );
    }
    if let Some(place) = place {
        place.write(&calibration);
    }
    Ok(calibration)
}
