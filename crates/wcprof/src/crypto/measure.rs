//! A libcrypto to its calibration, with a word to the user before, and a warning if it is not exact.

use msgr_crypto::calibration::{Calibration, CalibrationOptions, calibrate};
use msgr_crypto_ffi::Library;
use wcprof_text::terminal_name;

use crate::failure::Failure;

/// Above this share of disturbed measurements there is a warning.
const MAX_DISTURBED: f64 = 0.2;

/// Calibrates, and announces it, since it takes seconds.
pub(super) fn measure(library: &Library) -> Result<Calibration, Failure> {
    message!(
        "wcprof: measuring {}: a second, longer beside other work",
        terminal_name(&library.version)
    );
    let options = CalibrationOptions::default();
    let calibration = calibrate(library, &options).map_err(anyhow::Error::new)?;
    if calibration.disturbed_share > MAX_DISTURBED {
        message!(
            "wcprof: other work slowed this core during {:.0} % of the measurements, so they are less exact; \
             measure again on a calmer machine",
            100.0 * calibration.disturbed_share
        );
    }
    Ok(calibration)
}
