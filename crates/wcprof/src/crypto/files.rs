//! Files of users and libraries to shapes, calibrations and JSON documents; errors with advice.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use msgr_crypto::calibration::{Calibration, parse_speed_table};
use msgr_crypto::shapes::{Shape, builtin, parse_shapes};
use msgr_crypto_ffi::{Library, LibraryError};
use serde::Serialize;
use wcprof_text::printable_json;

use crate::failure::{Exit, Failure};

/// No file of shapes or of a calibration is larger.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Shapes of a file, or the built-in ones.
pub(super) fn read_shapes(path: Option<&Path>) -> Result<Vec<Shape>, Failure> {
    let Some(path) = path else {
        return Ok(builtin());
    };
    parse_shapes(&read(path)?).map_err(|error| {
        unusable(path, error).hint("docs/crypto.md describes the format of shapes")
    })
}

/// A saved calibration.
pub(super) fn read_calibration(path: &Path) -> Result<Calibration, Failure> {
    Calibration::from_json(&read(path)?).map_err(|error| {
        unusable(path, error).hint("`wcprof crypto calibrate -o FILE` makes a calibration")
    })
}

/// A saved table of `openssl speed`.
pub(super) fn read_speed_table(path: &Path) -> Result<Calibration, Failure> {
    parse_speed_table(&read(path)?).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    let error = anyhow::Error::new(error).context(format!("failed to read `{}`", path.display()));
    Failure::new(Exit::Usage, error)
}

/// A text file of bounded length.
fn read(path: &Path) -> Result<String, Failure> {
    let read = || {
        // Opening a FIFO would wait for a writer.
        if !fs::metadata(path)?.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        let mut file = fs::File::open(path)?.take(MAX_FILE_BYTES + 1);
        file.read_to_string(&mut text)?;
        match text.len() as u64 > MAX_FILE_BYTES {
            true => Err(std::io::Error::other("larger than 8 MiB")),
            false => Ok(text),
        }
    };
    read()
        .with_context(|| format!("failed to read `{}`", path.display()))
        .map_err(|error| Failure::new(Exit::Usage, error))
}

/// The library at `path`, or the system's.
pub(super) fn open_library(path: Option<&Path>) -> Result<Library, Failure> {
    let library = match path {
        Some(path) => Library::open(path),
        None => Library::system(),
    };
    library.map_err(|error| {
        let hint = match &error {
            LibraryError::Dependency { .. } => None,
            LibraryError::Load { .. } | LibraryError::NoSymbol { .. } => {
                Some("`grep libcrypto /proc/PID/maps` shows which file a process uses".to_owned())
            }
            _ => Some("without --lib the system's libcrypto is measured".to_owned()),
        };
        let mut failure = Failure::new(Exit::Failure, error);
        failure.hint = hint;
        failure
    })
}

/// `content` as a JSON document of this schema.
pub(super) fn json_document(
    schema: &'static str,
    version: u32,
    content: &impl Serialize,
) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Document<'a, T> {
        schema: &'static str,
        version: u32,
        #[serde(flatten)]
        content: &'a T,
    }
    printable_json(&Document {
        schema,
        version,
        content,
    })
    .map_err(|error| Failure::new(Exit::Failure, error))
}
