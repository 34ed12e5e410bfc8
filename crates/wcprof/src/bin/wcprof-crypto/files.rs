//! Files of users and libraries to shapes, calibrations and JSON documents; errors with advice.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, ensure};
use msgr_crypto::FileError;
use msgr_crypto::calibration::{Calibration, parse_speed_table};
use msgr_crypto::shapes::{Shape, builtin, parse_shapes};
use msgr_crypto_ffi::{Library, LibraryError};
use serde::Serialize;
use wcprof_host::open::open_regular;
use wcprof_text::printable_json;

use wcprof_cli::{Exit, Failure};

/// No file of shapes or of a calibration is larger.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Shapes of a file, or the built-in ones.
pub(crate) fn read_shapes(path: Option<&Path>) -> Result<Vec<Shape>, Failure> {
    let Some(path) = path else {
        return Ok(builtin());
    };
    parse_shapes(&read(path)?).map_err(|error| {
        unusable(path, error).hint("docs/crypto.md describes the format of shapes")
    })
}

/// A saved calibration.
pub(crate) fn read_calibration(path: &Path) -> Result<Calibration, Failure> {
    Calibration::from_json(&read(path)?).map_err(|error| {
        unusable(path, error).hint("`wcprof crypto calibrate -o FILE` makes a calibration")
    })
}

/// A saved table of `openssl speed`.
pub(crate) fn read_speed_table(path: &Path) -> Result<Calibration, Failure> {
    parse_speed_table(&read(path)?).map_err(|error| unusable(path, error))
}

fn unusable(path: &Path, error: FileError) -> Failure {
    let error = anyhow::Error::new(error).context(format!("failed to read `{}`", path.display()));
    Failure::usage(error)
}

/// A text file of bounded length.
fn read(path: &Path) -> Result<String, Failure> {
    let read = || -> anyhow::Result<String> {
        let file = open_regular(path).map_err(|error| error.reason)?;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        ensure!(text.len() as u64 <= MAX_FILE_BYTES, "larger than 8 MiB");
        Ok(text)
    };
    read()
        .with_context(|| format!("failed to read `{}`", path.display()))
        .map_err(Failure::usage)
}

/// The library at `path`, or the system's.
pub(crate) fn open_library(path: Option<&Path>) -> Result<Library, Failure> {
    let library = match path {
        Some(path) => Library::open(path),
        None => Library::system(),
    };
    library.map_err(|error| {
        let hint = match &error {
            LibraryError::Dependency { .. } => return Failure::new(Exit::Failure, error),
            LibraryError::Load { .. } | LibraryError::NoSymbol { .. } => {
                "`grep libcrypto /proc/PID/maps` shows which file a process uses"
            }
            _ => "without --lib the system's libcrypto is measured",
        };
        Failure::new(Exit::Failure, error).hint(hint)
    })
}

/// `content` as a JSON document of this schema.
pub(crate) fn json_document(
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
    let document = Document {
        schema,
        version,
        content,
    };
    Ok(printable_json(&document).map_err(anyhow::Error::new)?)
}
