//! Findings as JSON. The schema is documented in `docs/hotspots.md`.

use serde::{Deserialize, Serialize};

use wcprof_profile::Cores;

use crate::finding::Finding;
use crate::printable::printable_json;
use crate::rule::Rule;
use crate::rule_set::RuleSet;

/// Value of the document's `schema` key.
pub const JSON_SCHEMA: &str = "wcprof-hotspots";

/// Value of the `schema` key of a list of rules.
pub const RULES_SCHEMA: &str = "wcprof-rules";

/// Value of the document's `version` key. Keys are added without a new version; a key that is
/// removed or changes its meaning gives a new one.
pub const JSON_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cores: Option<Cores>,
    findings: Vec<Finding>,
}

/// The findings, with the cores that processes used if given, as one indented document that ends with a newline. Control characters of names
/// are escaped as JSON does.
///
/// # Errors
/// A percentage is not finite, which findings of [`crate::hotspots`] never are.
pub fn to_json(findings: &[Finding], cores: Option<&Cores>) -> Result<String, serde_json::Error> {
    let document = Document {
        schema: JSON_SCHEMA.to_owned(),
        version: JSON_VERSION,
        cores: cores.cloned(),
        findings: findings.to_vec(),
    };
    printable_json(&document)
}

/// All rules as one indented document that ends with a newline, with the keys of their files.
///
/// # Errors
/// A percentage is not finite.
pub fn rules_to_json(rules: &RuleSet) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Rules<'a> {
        schema: &'static str,
        version: u32,
        rules: &'a [Rule],
    }
    printable_json(&Rules {
        schema: RULES_SCHEMA,
        version: JSON_VERSION,
        rules: rules.rules(),
    })
}

/// Reads what [`to_json`] wrote.
///
/// # Errors
/// The text is no such document, or of another schema or version.
pub fn from_json(text: &str) -> Result<Vec<Finding>, serde_json::Error> {
    use serde::de::Error;
    let document: Document = serde_json::from_str(text)?;
    if document.schema != JSON_SCHEMA || document.version != JSON_VERSION {
        return Err(Error::custom(format!(
            "expected schema {JSON_SCHEMA} version {JSON_VERSION}, found {} version {}",
            document.schema, document.version
        )));
    }
    Ok(document.findings)
}
