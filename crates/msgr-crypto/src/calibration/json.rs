//! Calibrations to JSON and back; a file is checked, since anybody may have written it.

use serde::{Deserialize, Serialize};

use super::{Calibration, ColdCosts, Curve, DirectionCosts, Fit, LibraryFacts};
use crate::host::Host;

/// `schema` of the document.
pub const SCHEMA: &str = "msgr-crypto-calibration";
const VERSION: u32 = 4;
/// A calibration has about 40 KiB.
const MAX_BYTES: usize = 4 << 20;
/// Longest text in a file: paths and names of CPUs.
const MAX_TEXT: usize = 4096;
const MAX_FEATURES: usize = 100;
/// Most sizes of pieces.
const MAX_PIECES: usize = 100;
/// More than small buffers of a frame have.
const MAX_BASE: u64 = 1 << 20;
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
    /// Written by a later version.
    #[error("calibration version {0} is not known; this program reads {VERSION}")]
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
#[derive(Serialize, Deserialize)]
struct Head {
    schema: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    version: u32,
    library: LibraryFacts,
    host: Host,
    made_unix: u64,
    cpu_seconds: f64,
    reference_ns: f64,
    disturbed_share: f64,
    encrypt: DirectionCosts,
    decrypt: DirectionCosts,
    copy: Curve,
    l2_cold: Option<ColdCosts>,
    memory_cold: Option<ColdCosts>,
    /// For readers of the file; made from the tables, and not read back.
    #[serde(default, skip_deserializing)]
    fit: Option<Fits>,
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
        let this = self.clone();
        let document = Document {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            fit: Some(Fits {
                encrypt: Fit::of(&this.encrypt),
                decrypt: Fit::of(&this.decrypt),
            }),
            library: this.library,
            host: this.host,
            made_unix: this.made_unix,
            cpu_seconds: this.cpu_seconds,
            reference_ns: this.reference_ns,
            disturbed_share: this.disturbed_share,
            encrypt: this.encrypt,
            decrypt: this.decrypt,
            copy: this.copy,
            l2_cold: this.l2_cold,
            memory_cold: this.memory_cold,
        };
        Ok(serde_json::to_string(&document)?)
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
        let document: Document = serde_json::from_str(text)?;
        let calibration = Self {
            library: document.library,
            host: document.host,
            made_unix: document.made_unix,
            cpu_seconds: document.cpu_seconds,
            reference_ns: document.reference_ns,
            disturbed_share: document.disturbed_share,
            encrypt: document.encrypt,
            decrypt: document.decrypt,
            copy: document.copy,
            l2_cold: document.l2_cold,
            memory_cold: document.memory_cold,
        };
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
        let host = &self.host;
        if host.l2_bytes == 0 || host.l3_bytes < host.l2_bytes || host.l3_bytes > 1 << 40 {
            return Err(bad("host.l2_bytes", "and `host.l3_bytes` are no caches"));
        }
        check_time("cpu_seconds", self.cpu_seconds)?;
        check_time("reference_ns", self.reference_ns)?;
        if !(0.0..=1.0).contains(&self.disturbed_share) {
            return Err(bad("disturbed_share", "is no share"));
        }
        check_direction("encrypt", &self.encrypt)?;
        check_direction("decrypt", &self.decrypt)?;
        check_curve("copy", &self.copy, false)?;
        for (name, cold) in [
            ("l2_cold", &self.l2_cold),
            ("memory_cold", &self.memory_cold),
        ] {
            let Some(cold) = cold else { continue };
            for (way, frames) in cold.ways() {
                if frames.base > MAX_BASE {
                    return Err(bad(
                        &format!("{name}.{way}.base"),
                        "is no size of small buffers",
                    ));
                }
                for (field, curve) in [("small", &frames.small), ("data", &frames.data)] {
                    check_curve(&format!("{name}.{way}.{field}"), curve, true)?;
                }
                let field = format!("{name}.{way}.pieces");
                let pieces = &frames.pieces;
                if pieces.len() > MAX_PIECES {
                    return Err(bad(&field, "has too many sizes"));
                }
                if pieces.windows(2).any(|pair| pair[0].bytes >= pair[1].bytes) {
                    return Err(bad(&field, "has sizes that do not grow"));
                }
                for pieces in pieces {
                    check_curve(&field, &pieces.each, true)?;
                }
            }
        }
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
            "says that bytes cost nothing",
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
