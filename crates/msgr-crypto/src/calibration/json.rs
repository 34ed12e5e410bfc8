//! Calibrations to JSON and back. A file is hostile input, so it is checked.

use serde::{Deserialize, Serialize};

use super::{Calibration, Curve, DirectionCosts, Fit};

/// `schema` of the document.
pub const SCHEMA: &str = "msgr-crypto-calibration";
const VERSION: u32 = 5;
/// A calibration has about 10 KiB.
const MAX_BYTES: usize = 4 << 20;
/// Longest text in a file: paths and names of CPUs.
const MAX_TEXT: usize = 4096;
const MAX_FEATURES: usize = 100;
/// No call takes a minute.
const MAX_NS: f64 = 6e10;

/// A calibration that can not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// Larger than any calibration.
    #[error("the file has more than {MAX_BYTES} bytes")]
    Size,
    /// Not JSON, or fields are missing.
    #[error("not a calibration: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of something else.
    #[error("the schema is `{0}`, not `{SCHEMA}`")]
    Schema(String),
    /// Written by another version.
    #[error("calibration version {0} is not known; this program reads version {VERSION}")]
    Version(u32),
    /// A value that no measurement gives.
    #[error("`{field}` {reason}")]
    Value {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// What identifies a document.
#[derive(Deserialize)]
struct Head {
    schema: String,
    version: u32,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    calibration: &'a Calibration,
    /// For readers of the file; made from the tables, and not read back.
    fit: Fits,
}

#[derive(Serialize)]
struct Fits {
    encrypt: Fit,
    decrypt: Fit,
}

impl Calibration {
    /// As a JSON document, with the fitted lines.
    ///
    /// # Errors
    /// When a value is not a number, which [`Calibration::from_json`] never gives.
    pub fn to_json(&self) -> Result<String, CalibrationError> {
        Ok(serde_json::to_string(&Document {
            schema: SCHEMA,
            version: VERSION,
            calibration: self,
            fit: Fits {
                encrypt: Fit::new(&self.encrypt),
                decrypt: Fit::new(&self.decrypt),
            },
        })?)
    }

    /// From a document; fields that are not known are ignored.
    ///
    /// # Errors
    /// When it is not a calibration of a known version with sound values.
    pub fn from_json(text: &str) -> Result<Self, CalibrationError> {
        if text.len() > MAX_BYTES {
            return Err(CalibrationError::Size);
        }
        let head: Head = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            let shown = head.schema.chars().filter(|c| !c.is_control()).take(60);
            return Err(CalibrationError::Schema(shown.collect()));
        }
        if head.version != VERSION {
            return Err(CalibrationError::Version(head.version));
        }
        let calibration: Self = serde_json::from_str(text)?;
        calibration.check()?;
        Ok(calibration)
    }

    /// Finds values that no measurement gives.
    pub(super) fn check(&self) -> Result<(), CalibrationError> {
        let texts = [
            ("library.version", Some(&self.library.version)),
            ("library.path", self.library.path.as_ref()),
            ("library.kernel", Some(&self.library.kernel)),
            ("host.cpu", Some(&self.host.cpu)),
        ];
        let features = self.library.cpu_features.iter();
        let features = features.map(|text| ("library.cpu_features", Some(text)));
        for (field, text) in texts.into_iter().chain(features) {
            if text.is_some_and(|text| text.len() > MAX_TEXT) {
                return Err(bad(field, "is too long"));
            }
        }
        if self.library.cpu_features.len() > MAX_FEATURES {
            return Err(bad("library.cpu_features", "has too many names"));
        }
        if !(1..=1 << 40).contains(&self.host.l2_bytes) {
            return Err(bad("host.l2_bytes", "is no size of a cache"));
        }
        check_time("cpu_seconds", self.cpu_seconds)?;
        check_time("reference_ns", self.reference_ns)?;
        if !(0.0..=1.0).contains(&self.disturbed_share) {
            return Err(bad("disturbed_share", "is not between 0 and 1"));
        }
        check_direction("encrypt", &self.encrypt)?;
        check_direction("decrypt", &self.decrypt)?;
        check_curve("copy", &self.copy, false)?;
        Ok(())
    }
}

fn check_direction(name: &str, costs: &DirectionCosts) -> Result<(), CalibrationError> {
    for (field, ns) in [
        ("unit_ns", costs.unit_ns),
        ("nonce_ns", costs.nonce_ns),
        ("rekey_ns", costs.rekey_ns),
        ("context_ns", costs.context_ns),
    ] {
        check_time(&format!("{name}.{field}"), ns)?;
    }
    for (field, curve, signed) in [
        ("update", &costs.update, false),
        ("tail", &costs.tail, true),
        ("small", &costs.small, true),
        ("fill", &costs.fill, true),
        ("head", &costs.head, true),
        ("shifted", &costs.shifted, true),
        ("out_of_place", &costs.out_of_place, true),
        ("first", &costs.first, true),
    ] {
        check_curve(&format!("{name}.{field}"), curve, signed)?;
    }
    let points = costs.update.points();
    if points.len() < 2 {
        return Err(bad(&format!("{name}.update"), "has fewer than two points"));
    }
    if points.last().is_some_and(|(_, ns)| *ns <= 0.0) {
        return Err(bad(
            &format!("{name}.update"),
            "has bytes that cost nothing",
        ));
    }
    Ok(())
}

fn check_time(field: &str, value: f64) -> Result<(), CalibrationError> {
    match (0.0..=MAX_NS).contains(&value) {
        true => Ok(()),
        false => Err(bad(field, "is no time that a call can take")),
    }
}

fn check_curve(field: &str, curve: &Curve, signed: bool) -> Result<(), CalibrationError> {
    curve.check(signed).map_err(|reason| bad(field, reason))
}

fn bad(field: &str, reason: &'static str) -> CalibrationError {
    CalibrationError::Value {
        field: field.to_owned(),
        reason,
    }
}
