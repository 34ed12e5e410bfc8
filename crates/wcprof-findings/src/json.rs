//! Findings as JSON. The schema is documented in `docs/doctor.md`.

use serde_json::{Value, json};
use wcprof_text::printable_json;

use crate::finding::{Finding, Hotspots};
use crate::rule_set::RuleSet;

/// Value of the documents' `version` key. Keys are added without a new version; a key that is
/// removed or changes its meaning gives a new one.
const JSON_VERSION: u32 = 2;

/// Findings of time, then those of `settings`, as one indented document that ends with a newline. `processes` is what
/// else is known of each process. Control characters of names are escaped as JSON does.
///
/// # Errors
/// A percentage is not finite, which findings of [`crate::hotspots`] never are.
pub fn to_json(
    hotspots: &Hotspots,
    settings: &[Finding],
    processes: Vec<Value>,
) -> Result<String, serde_json::Error> {
    let findings: Vec<&Finding> = hotspots.findings.iter().chain(settings).collect();
    printable_json(&json!({
        "schema": "wcprof-doctor",
        "version": JSON_VERSION,
        "findings": findings,
        "undecided": hotspots.undecided,
        "processes": processes,
    }))
}

/// All rules as one indented document that ends with a newline, with the keys of their files.
///
/// # Errors
/// A percentage is not finite.
pub fn rules_to_json(rules: &RuleSet) -> Result<String, serde_json::Error> {
    let rules = rules.rules();
    printable_json(&json!({"schema": "wcprof-rules", "version": JSON_VERSION, "rules": rules}))
}
