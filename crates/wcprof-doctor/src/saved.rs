//! A snapshot as JSON text, and back.

use thiserror::Error;
use wcprof_types::snapshot::{SNAPSHOT_SCHEMA, SNAPSHOT_VERSION, Snapshot};
use wcprof_types::{redact_args, redact_value};

/// Text that is no snapshot.
#[derive(Debug, Error)]
pub enum SavedError {
    /// Not JSON, or not of this form.
    #[error("not a snapshot of wcprof doctor: {0}")]
    Parse(#[from] serde_json::Error),
    /// Another document.
    #[error("not a snapshot of wcprof doctor: its schema is `{0}`")]
    Schema(String),
    /// Written by a newer wcprof.
    #[error("the snapshot has version {0}; this wcprof reads version {SNAPSHOT_VERSION}")]
    Version(u32),
}

/// The snapshot as one line of JSON.
///
/// # Errors
/// None for what was read by wcprof.
pub fn to_saved(snapshot: &Snapshot) -> Result<String, SavedError> {
    Ok(serde_json::to_string(snapshot)?)
}

/// Reads what [`to_saved`] wrote. Secrets are removed once more: the text may come from elsewhere.
///
/// # Errors
/// The text is no snapshot, or one of a newer version.
pub fn from_saved(text: &str) -> Result<Snapshot, SavedError> {
    let mut snapshot: Snapshot = serde_json::from_str(text)?;
    if snapshot.schema != SNAPSHOT_SCHEMA {
        let schema = snapshot.schema.chars().take(64).collect();
        return Err(SavedError::Schema(schema));
    }
    if snapshot.version != SNAPSHOT_VERSION {
        return Err(SavedError::Version(snapshot.version));
    }
    let process = &mut snapshot.process;
    process.cmdline = redact_args(&process.cmdline);
    for value in process.environ.iter_mut().flat_map(|e| e.values_mut()) {
        *value = redact_value(value);
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a snapshot survives, without the secrets that it should not have had.
    #[test]
    fn round_trip() {
        let mut snapshot = Snapshot {
            schema: SNAPSHOT_SCHEMA.into(),
            version: SNAPSHOT_VERSION,
            ..Snapshot::default()
        };
        snapshot.process.cmdline = vec!["x".into(), "--key=AQ==".into()];
        let text = to_saved(&snapshot).unwrap();
        assert!(!text.contains('\n'));
        snapshot.process.cmdline[1] = "--key=***".into();
        assert_eq!(from_saved(&text).unwrap(), snapshot);
    }

    /// Check that other documents and versions are refused by name.
    #[test]
    fn refused() {
        let error = |text: &str| from_saved(text).unwrap_err().to_string();
        assert!(error("{").contains("not a snapshot"));
        assert!(error("[1]").contains("not a snapshot"));
        assert!(error("{\"schema\":\"wcprof-check\"}").contains("wcprof-check"));
        let newer = error("{\"schema\":\"wcprof-snapshot\",\"version\":9}");
        assert!(newer.contains("version 9"), "{newer}");
    }
}
