//! Paths to what JSON can hold, and back: any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path, whatever its bytes are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WirePath(Vec<u8>);

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<WirePath> for PathBuf {
    fn from(path: WirePath) -> Self {
        OsString::from_vec(path.0).into()
    }
}
