//! A report as JSON. The schema is documented in `docs/doctor.md`.

use serde::Serialize;
use wcprof_findings::Finding;
use wcprof_text::printable_json;
use wcprof_types::snapshot::{Snapshot, Unread};

use crate::report::{Passed, Report, Unknown};

/// Value of the document's `schema` key.
pub const JSON_SCHEMA: &str = "wcprof-doctor";
/// Value of the document's `version` key. Keys are added without a new version; a key that is
/// removed or changes its meaning gives a new one.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    pid: i32,
    process: &'a str,
    host: &'a str,
    taken_unix_ns: u64,
    findings: &'a [Finding],
    unknown: &'a [Unknown],
    passed: &'a [Passed],
    unread: &'a [Unread],
}

/// One indented document that ends with a newline, with what passed, too.
///
/// # Errors
/// None for reports of [`crate::diagnose`].
pub fn to_json(snapshot: &Snapshot, report: &Report) -> Result<String, serde_json::Error> {
    let document = Document {
        schema: JSON_SCHEMA,
        version: JSON_VERSION,
        pid: snapshot.process.pid.0,
        process: &snapshot.process.comm,
        host: &snapshot.host.name,
        taken_unix_ns: snapshot.taken_unix_ns,
        findings: &report.findings,
        unknown: &report.unknown,
        passed: &report.passed,
        unread: &snapshot.unread,
    };
    printable_json(&document)
}
