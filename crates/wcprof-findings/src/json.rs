//! Findings as JSON. The schema is documented in `docs/hotspots.md`.

use serde_json::json;
use wcprof_profile::Cores;
use wcprof_text::printable_json;

use crate::finding::Hotspots;
use crate::rule_set::RuleSet;

/// Value of the document's `version` key. Keys are added without a new version; a key that is
/// removed or changes its meaning gives a new one.
const JSON_VERSION: u32 = 2;

/// The findings, with the cores that processes used if given, as one indented document that ends with
/// a newline. Control characters of names are escaped as JSON does.
///
/// # Errors
/// A percentage is not finite, which findings of [`crate::hotspots`] never are.
pub fn to_json(hotspots: &Hotspots, cores: Option<&Cores>) -> Result<String, serde_json::Error> {
    let mut document = json!({"schema": "wcprof-hotspots", "version": JSON_VERSION});
    if let Some(cores) = cores {
        document["cores"] = json!(cores);
    }
    document["findings"] = json!(hotspots.findings);
    document["undecided"] = json!(hotspots.undecided);
    printable_json(&document)
}

/// All rules as one indented document that ends with a newline, with the keys of their files.
///
/// # Errors
/// A percentage is not finite.
pub fn rules_to_json(rules: &RuleSet) -> Result<String, serde_json::Error> {
    let rules = rules.rules();
    printable_json(&json!({"schema": "wcprof-rules", "version": JSON_VERSION, "rules": rules}))
}
