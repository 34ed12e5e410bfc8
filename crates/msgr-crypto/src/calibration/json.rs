//! Calibrations to JSON and back. A file is hostile input, so it is checked.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Calibration, DirectionCosts, Fit};
use crate::file_error::{FileError, check, ensure};

/// `schema` of the document.
pub const SCHEMA: &str = "msgr-crypto-calibration";
/// `version` of the document.
pub const VERSION: u32 = 5;
/// A calibration has about 10 KiB.
const MAX_BYTES: usize = 4 << 20;
/// Longest text in a file: paths and names of CPUs.
const MAX_TEXT: usize = 4096;
const MAX_FEATURES: usize = 100;
/// No call takes a minute.
const MAX_NS: f64 = 6e10;

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
    fit: Value,
}

impl Calibration {
    /// As a JSON document, with the fitted lines.
    ///
    /// # Errors
    /// When a value is not a number, which [`Calibration::from_json`] never gives.
    pub fn to_json(&self) -> Result<String, FileError> {
        serde_json::to_string(&Document {
            schema: SCHEMA,
            version: VERSION,
            calibration: self,
            fit: json!({
                "encrypt": Fit::new(&self.encrypt),
                "decrypt": Fit::new(&self.decrypt),
            }),
        })
        .map_err(no_calibration)
    }

    /// From a document; fields that are not known are ignored.
    ///
    /// # Errors
    /// When it is not a calibration of a known version with sound values.
    pub fn from_json(text: &str) -> Result<Self, FileError> {
        ensure(text.len() <= MAX_BYTES, || {
            format!("the file has more than {MAX_BYTES} bytes")
        })?;
        let Head { schema, version } = serde_json::from_str(text).map_err(no_calibration)?;
        ensure(schema == SCHEMA, || {
            let shown = schema.chars().filter(|c| !c.is_control()).take(60);
            let shown: String = shown.collect();
            format!("the schema is `{shown}`, not `{SCHEMA}`")
        })?;
        ensure(version == VERSION, || {
            format!(
                "calibration version {version} is not known; this program reads version {VERSION}"
            )
        })?;
        let calibration: Self = serde_json::from_str(text).map_err(no_calibration)?;
        calibration.check()?;
        Ok(calibration)
    }

    /// Finds values that no measurement gives.
    pub(super) fn check(&self) -> Result<(), FileError> {
        let Self { library, host, .. } = self;
        let texts = [
            ("library.version", &library.version),
            ("library.kernel", &library.kernel),
            ("host.cpu", &host.cpu),
        ];
        let paths = library.path.iter().map(|text| ("library.path", text));
        let features = &library.cpu_features;
        let names = features.iter().map(|text| ("library.cpu_features", text));
        for (field, text) in texts.into_iter().chain(paths).chain(names) {
            check(text.len() <= MAX_TEXT, field, "is too long")?;
        }
        let (n, is_size) = (features.len(), (1..=1 << 40).contains(&host.l2_bytes));
        check(
            n <= MAX_FEATURES,
            "library.cpu_features",
            "has too many names",
        )?;
        check(is_size, "host.l2_bytes", "is no size of a cache")?;
        check_time("cpu_seconds", self.cpu_seconds)?;
        check_time("reference_ns", self.reference_ns)?;
        let is_share = (0.0..=1.0).contains(&self.disturbed_share);
        check(is_share, "disturbed_share", "is not between 0 and 1")?;
        check_direction("encrypt", &self.encrypt)?;
        check_direction("decrypt", &self.decrypt)?;
        self.copy.check("copy", false)
    }
}

fn check_direction(name: &str, costs: &DirectionCosts) -> Result<(), FileError> {
    for (field, ns) in [
        ("unit_ns", costs.unit_ns),
        ("nonce_ns", costs.nonce_ns),
        ("rekey_ns", costs.rekey_ns),
        ("context_ns", costs.context_ns),
    ] {
        check_time(&format!("{name}.{field}"), ns)?;
    }
    for (field, curve) in [
        ("update", &costs.update),
        ("tail", &costs.tail),
        ("small", &costs.small),
        ("fill", &costs.fill),
        ("head", &costs.head),
        ("shifted", &costs.shifted),
        ("out_of_place", &costs.out_of_place),
        ("first", &costs.first),
    ] {
        curve.check(&format!("{name}.{field}"), field != "update")?;
    }
    let (field, points) = (format!("{name}.update"), costs.update.points());
    check(points.len() >= 2, &field, "has fewer than two points")?;
    let has_cost = points.last().is_some_and(|(_, ns)| *ns > 0.0);
    check(has_cost, &field, "has bytes that cost nothing")
}

fn check_time(field: &str, value: f64) -> Result<(), FileError> {
    let is_time = (0.0..=MAX_NS).contains(&value);
    check(is_time, field, "is no time that a call can take")
}

fn no_calibration(error: serde_json::Error) -> FileError {
    FileError(format!("not a calibration: {error}"))
}
