//! Findings as JSON. The schema is documented in `docs/hotspots.md`.

use serde::Serialize;
use wcprof_profile::Cores;
use wcprof_text::printable_json;

use crate::finding::Finding;
use crate::rule::Rule;
use crate::rule_set::RuleSet;

/// Value of the document's `schema` key.
pub const JSON_SCHEMA: &str = "wcprof-hotspots";

/// Value of the `schema` key of a list of rules.
pub const RULES_SCHEMA: &str = "wcprof-rules";

/// Value of the document's `version` key. Keys are added without a new version; a key that is
/// removed or changes its meaning gives a new one.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<&'a Cores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<&'a [Finding]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<&'a [Rule]>,
}

/// The findings, with the cores that processes used if given, as one indented document that ends with
/// a newline. Control characters of names are escaped as JSON does.
///
/// # Errors
/// A percentage is not finite, which findings of [`crate::hotspots`] never are.
pub fn to_json(findings: &[Finding], cores: Option<&Cores>) -> Result<String, serde_json::Error> {
    printable_json(&Document {
        schema: JSON_SCHEMA,
        version: JSON_VERSION,
        cores,
        findings: Some(findings),
        rules: None,
    })
}

/// All rules as one indented document that ends with a newline, with the keys of their files.
///
/// # Errors
/// A percentage is not finite.
pub fn rules_to_json(rules: &RuleSet) -> Result<String, serde_json::Error> {
    printable_json(&Document {
        schema: RULES_SCHEMA,
        version: JSON_VERSION,
        cores: None,
        findings: None,
        rules: Some(rules.rules()),
    })
}
