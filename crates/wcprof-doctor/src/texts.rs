//! What is said when a check finds something: severity, advice and sources, as data in
//! `checks/*.toml`. What is tested is code, in `checks/`.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;
use wcprof_findings::{Gain, Severity, Source};

/// Texts that cannot be used.
#[derive(Debug, Error)]
#[error("failed to parse `{file}`: {message}")]
pub struct TextsError {
    file: &'static str,
    message: String,
}

const BUILTIN: [(&str, &str); 4] = [
    ("qemu.toml", include_str!("../checks/qemu.toml")),
    ("ceph.toml", include_str!("../checks/ceph.toml")),
    ("storage.toml", include_str!("../checks/storage.toml")),
    ("host.toml", include_str!("../checks/host.toml")),
];

/// What is said of a finding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckText {
    pub(crate) title: String,
    pub(crate) severity: Severity,
    /// What it compares, and the threshold if it has one.
    pub(crate) test: String,
    pub(crate) explanation: String,
    pub(crate) advice: String,
    pub(crate) verify: String,
    pub(crate) gain: Gain,
    pub(crate) sources: Vec<Source>,
}

/// The texts of all checks, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(BTreeMap<String, CheckText>);

impl Texts {
    pub(crate) fn builtin() -> Result<Self, TextsError> {
        let mut all = BTreeMap::new();
        for (file, text) in BUILTIN {
            let checks: BTreeMap<String, CheckText> =
                toml::from_str(text).map_err(|e| TextsError {
                    file,
                    message: e.to_string(),
                })?;
            all.extend(checks);
        }
        Ok(Self(all))
    }

    pub(crate) fn get(&self, id: &str) -> Option<&CheckText> {
        self.0.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &CheckText)> {
        self.0.iter().map(|(id, text)| (id.as_str(), text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every check's texts are complete, and that every id in the code has them.
    #[test]
    fn complete() {
        let texts = Texts::builtin().unwrap();
        for (id, t) in texts.iter() {
            for text in [
                &t.title,
                &t.test,
                &t.explanation,
                &t.advice,
                &t.verify,
                &t.gain.text,
            ] {
                assert!(!text.trim().is_empty(), "{id}");
            }
            assert!(!t.sources.is_empty(), "{id} has no source");
            assert!(!t.title.contains('\n'), "{id}");
        }
        let code = [
            include_str!("checks/disks.rs"),
            include_str!("checks/machine.rs"),
            include_str!("checks/libraries.rs"),
            include_str!("checks/ceph.rs"),
            include_str!("checks/storage.rs"),
            include_str!("checks/placement.rs"),
            include_str!("checks/memory.rs"),
            include_str!("checks/limits.rs"),
        ]
        .concat();
        for part in code.split("const ID_").skip(1) {
            let id = part.split('"').nth(1).unwrap();
            assert!(texts.get(id).is_some(), "no texts for {id}");
        }
        for (id, _) in texts.iter() {
            assert!(code.contains(&format!("\"{id}\"")), "no check for {id}");
        }
    }
}
