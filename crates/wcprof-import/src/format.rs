//! Formats of other profilers, by name.

use serde::{Deserialize, Serialize};

/// A format that can be imported.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Format {
    /// `perf record`'s file.
    Perf,
    /// `root;...;leaf WEIGHT`, a stack a line.
    Folded,
    /// uwpmp's text.
    Uwpmp,
    /// gdbpmp's text.
    Gdbpmp,
    /// Stacks of all threads, as gdb, gstack, pstack and eu-stack print them.
    Dump,
    /// Counted stacks, as pt-pmp prints them.
    PtPmp,
    /// The text of `perf script`.
    PerfScript,
}

impl Format {
    /// As given on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Folded => "folded",
            Self::Uwpmp => "uwpmp",
            Self::Gdbpmp => "gdbpmp",
            Self::Dump => "dump",
            Self::PtPmp => "pt-pmp",
            Self::PerfScript => "perf-script",
        }
    }

    /// In words.
    pub fn what(self) -> &'static str {
        match self {
            Self::Perf => "perf.data",
            Self::Folded => "folded stacks",
            Self::Uwpmp => "uwpmp's text",
            Self::Gdbpmp => "gdbpmp's text",
            Self::Dump => "a dump of stacks",
            Self::PtPmp => "pt-pmp's text",
            Self::PerfScript => "the text of perf script",
        }
    }
}
