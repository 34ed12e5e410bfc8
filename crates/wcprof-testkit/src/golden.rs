//! Golden files: outputs that were read by a person once.

use std::path::Path;

/// Asserts that a golden file holds this. `WCPROF_BLESS=1` writes it anew.
#[track_caller]
pub fn golden(path: impl AsRef<Path>, actual: impl AsRef<[u8]>) {
    let (path, actual) = (path.as_ref(), actual.as_ref());
    if std::env::var_os("WCPROF_BLESS").is_some() {
        std::fs::write(path, actual).expect("the golden file is writable");
    }
    let expected = std::fs::read(path).unwrap_or_default();
    assert!(
        expected == actual,
        "`{}` differs; `WCPROF_BLESS=1` accepts:\n{}",
        path.display(),
        String::from_utf8_lossy(actual)
    );
}
