//! A libcrypto to its calibration, with a word to the user before, and a warning if it is not exact.

use msgr_crypto::calibration::{Calibration, CalibrationOptions, calibrate};
use msgr_crypto_ffi::Library;
use wcprof_text::terminal_name;

use crate::failure::{Exit, Failure};

/// Above this share of disturbed measurements there is a warning.
const MAX_DISTURBED: f64 = 0.2;

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
