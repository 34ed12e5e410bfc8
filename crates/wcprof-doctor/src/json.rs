//! A report as JSON. The schema is documented in `docs/doctor.md`.

use serde_json::json;
use wcprof_text::printable_json;
use wcprof_types::snapshot::Snapshot;

use crate::report::Report;

/// One indented document that ends with a newline, with what passed, too. Keys are added without a new
/// version; a key that is removed or changes its meaning gives a new one.
///
/// # Errors
/// None for reports of [`crate::diagnose`].
pub fn to_json(snapshot: &Snapshot, report: &Report) -> Result<String, serde_json::Error> {
    printable_json(&json!({
        "schema": "wcprof-doctor",
        "version": 1,
        "pid": snapshot.process.pid.0,
        "process": snapshot.process.comm,
        "host": snapshot.host.name,
        "taken_unix_ns": snapshot.taken_unix_ns,
        "findings": report.findings,
        "unknown": report.unknown,
        "passed": report.passed,
        "unread": snapshot.unread,
    }))
}
