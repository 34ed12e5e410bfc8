//! What a report says of its process besides findings, as JSON. The schema is documented in `docs/doctor.md`.

use serde_json::{Value, json};
use wcprof_types::process_title;
use wcprof_types::snapshot::Snapshot;

use crate::report::Report;

/// An object with what passed, too.
pub fn to_json(snapshot: &Snapshot, report: &Report) -> Value {
    let process = &snapshot.process;
    json!({
        "pid": process.pid.0,
        "process": process_title(&process.comm, &process.cmdline),
        "host": snapshot.host.name,
        "taken_unix_ns": snapshot.taken_unix_ns,
        "unknown": report.unknown,
        "passed": report.passed,
        "unread": snapshot.unread,
    })
}
