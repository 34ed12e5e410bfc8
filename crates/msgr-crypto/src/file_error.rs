//! Why a calibration, a list of shapes or a table of `openssl speed` can not be used.

/// Why a file, or text in it, can not be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(pub(crate) String);

/// An error with this reason, unless `is_good`.
pub(crate) fn ensure(is_good: bool, reason: impl FnOnce() -> String) -> Result<(), FileError> {
    match is_good {
        true => Ok(()),
        false => Err(FileError(reason())),
    }
}

/// An error that names the field, unless its value is good.
pub(crate) fn check(is_good: bool, field: &str, reason: &str) -> Result<(), FileError> {
    ensure(is_good, || format!("`{field}` {reason}"))
}
