//! What the caller may choose about an import.

use serde::{Deserialize, Serialize};

use crate::format::Format;

/// How to import.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// The format; `None` recognizes it by its content.
    pub format: Option<Format>,
    /// Name of the source, for the trace's notes.
    pub name: String,
    /// Nanoseconds that one unit of a folded weight, or one sample of uwpmp or gdbpmp, stands for.
    /// `None` for 1 us and 10 ms.
    pub unit_ns: Option<u64>,
    /// Which of the two weights of a differential's lines is taken, 1 or 2; `None` for lines with one.
    pub column: Option<u8>,
    /// The tree is inverted (`unwindpmp -v`); `None` looks at its roots.
    pub inverted: Option<bool>,
    /// Version of wcprof, for the trace's header.
    pub wcprof_version: String,
    /// Time of the import, ns since 1970: that of the trace if the source has none.
    pub now_unix_ns: u64,
}
