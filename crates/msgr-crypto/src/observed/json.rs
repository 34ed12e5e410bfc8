//! Observations to JSON and back; the format is documented in `docs/crypto-observe.md`.

use serde::{Deserialize, Serialize};

use super::Observation;

/// `schema` of the document.
pub const SCHEMA: &str = "msgr-crypto-observation";
const VERSION: u32 = 1;
/// Histograms and shapes at their limits stay far below.
const MAX_BYTES: usize = 16 << 20;

/// An observation that can not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObservationError {
    /// Larger than any observation.
    #[error("the file has more than {MAX_BYTES} bytes")]
    Size,
    /// Not JSON, or fields are missing.
    #[error("not an observation: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of something else.
    #[error("the schema is `{0}`, not `{SCHEMA}`")]
    Schema(String),
    /// Written by a later version.
    #[error("observation version {0} is not known; this program reads {VERSION}")]
    Version(u32),
}

#[derive(Deserialize)]
struct Head {
    schema: String,
    version: u32,
}

#[derive(Serialize)]
struct Written<'a> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    observation: &'a Observation,
}

impl Observation {
    /// As a JSON document.
    ///
    /// # Errors
    /// Never for an observation that was made here.
    pub fn to_json(&self) -> Result<String, ObservationError> {
        Ok(serde_json::to_string(&Written {
            schema: SCHEMA,
            version: VERSION,
            observation: self,
        })?)
    }

    /// From a document.
    ///
    /// # Errors
    /// When it is none of a known version.
    pub fn from_json(text: &str) -> Result<Self, ObservationError> {
        if text.len() > MAX_BYTES {
            return Err(ObservationError::Size);
        }
        let head: Head = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            let shown = head.schema.chars().filter(|c| !c.is_control()).take(60);
            return Err(ObservationError::Schema(shown.collect()));
        }
        if head.version != VERSION {
            return Err(ObservationError::Version(head.version));
        }
        Ok(serde_json::from_str(text)?)
    }
}
