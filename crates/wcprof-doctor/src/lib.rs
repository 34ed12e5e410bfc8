//! A snapshot of how a process and its host are set up, to findings: settings that cost time, each with
//! its origin, advice, and the report that the advice rests on.
//!
//! Only the snapshot is read, so a saved one and one from a trace give the same bytes on any machine. A
//! check has three outcomes: a finding, passed, or unknown. What the snapshot lacks is unknown, never a
//! finding.
#![forbid(unsafe_code)]

mod checks;
mod json;
mod qemu;
mod report;
mod saved;
mod text;
mod texts;

pub use json::to_json;
pub use report::{Observed, Passed, Report, Unknown};
pub use saved::{SavedError, from_saved, to_saved};
pub use text::{render_list, render_text};

use wcprof_types::snapshot::Snapshot;

/// Makes every check that applies to the process; the worst findings come first.
pub fn diagnose(snapshot: &Snapshot, observed: &Observed) -> Report {
    let texts = texts::builtin();
    let mut out = report::Out::new(snapshot, observed, &texts);
    checks::all(&mut out);
    out.finish()
}
