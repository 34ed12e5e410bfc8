//! The texts of findings (severity, advice, sources), which are data in `checks/*.toml`. What is tested is
//! code, in `checks/`.

use std::collections::BTreeMap;

use serde::Deserialize;
use wcprof_findings::{Remedy, Severity, Source};

const BUILTIN: [&str; 4] = [
    include_str!("../checks/qemu.toml"),
    include_str!("../checks/ceph.toml"),
    include_str!("../checks/storage.toml"),
    include_str!("../checks/host.toml"),
];

/// The texts of one check.
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
    /// What to do, in a few words.
    pub(crate) action: String,
    /// Of what kind that is.
    #[serde(default)]
    pub(crate) remedy: Remedy,
    pub(crate) sources: Vec<Source>,
}

/// The texts of all checks, by id.
pub(crate) type Texts = BTreeMap<String, CheckText>;

/// The texts that wcprof comes with.
pub(crate) fn builtin() -> Texts {
    let parse = |text| toml::from_str::<Texts>(text).expect("a test reads these texts");
    BUILTIN.into_iter().flat_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every check's texts are complete, and that every id in the code has them.
    #[test]
    fn complete() {
        let texts = builtin();
        for (id, t) in &texts {
            for text in [
                &t.title,
                &t.test,
                &t.explanation,
                &t.advice,
                &t.verify,
                &t.action,
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
            include_str!("checks/stopped.rs"),
        ]
        .concat();
        for part in code.split("const ID_").skip(1) {
            let id = part.split('"').nth(1).unwrap();
            assert!(texts.contains_key(id), "no texts for {id}");
        }
        for id in texts.keys() {
            assert!(code.contains(&format!("\"{id}\"")), "no check for {id}");
        }
    }
}
