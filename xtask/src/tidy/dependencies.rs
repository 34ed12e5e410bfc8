//! Which crate may use which: data flows one way, and outside code has a permissive license.

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::license::is_permitted;
use crate::process::{capture, cargo};

/// What each crate may use, in the order of the data flow. Tests obey it, too.
const MAY_USE: &[(&str, &str)] = &[
    ("itanium-demangle", ""),
    ("dwarf-stream", ""),
    ("wcprof-text", ""),
    ("wcprof-types", ""),
    ("wcprof-host", "wcprof-types"),
    ("wcprof-perf", "wcprof-types wcprof-host"),
    ("wcprof-capture", "wcprof-types wcprof-host wcprof-perf"),
    ("wcprof-unwind", "dwarf-stream wcprof-types"),
    ("wcprof-trace", "wcprof-types"),
    (
        "wcprof-record",
        "wcprof-types wcprof-host wcprof-capture wcprof-unwind wcprof-trace",
    ),
    (
        "wcprof-symbols",
        "itanium-demangle dwarf-stream wcprof-types wcprof-host wcprof-trace",
    ),
    ("wcprof-profile", "wcprof-types wcprof-trace wcprof-symbols"),
    (
        "wcprof-findings",
        "wcprof-text wcprof-types wcprof-trace wcprof-profile",
    ),
    ("wcprof-doctor", "wcprof-text wcprof-types wcprof-findings"),
    (
        "wcprof-report",
        "wcprof-text wcprof-types wcprof-trace wcprof-profile wcprof-findings",
    ),
    (
        "wcprof-export",
        "wcprof-text wcprof-types wcprof-trace wcprof-profile wcprof-report",
    ),
    (
        "wcprof-import",
        "dwarf-stream wcprof-types wcprof-unwind wcprof-trace wcprof-symbols",
    ),
    ("wcprof-demo", ""),
    ("wcprof-testkit", "wcprof-types wcprof-trace"),
    ("msgr-crypto-ffi", ""),
    ("msgr-crypto", "wcprof-text msgr-crypto-ffi"),
    (
        "wcprof",
        "wcprof-text wcprof-types wcprof-host wcprof-perf wcprof-capture wcprof-unwind \
         wcprof-trace wcprof-record wcprof-symbols wcprof-profile wcprof-findings wcprof-doctor \
         wcprof-report wcprof-export wcprof-import wcprof-demo wcprof-testkit msgr-crypto-ffi \
         msgr-crypto",
    ),
    (
        "wcprof-benches",
        "dwarf-stream wcprof-types wcprof-unwind wcprof-trace wcprof-symbols msgr-crypto-ffi \
         msgr-crypto",
    ),
    (
        "wcprof-fuzz",
        "itanium-demangle dwarf-stream wcprof-types wcprof-host wcprof-perf wcprof-capture \
         wcprof-unwind wcprof-trace wcprof-symbols wcprof-profile wcprof-findings wcprof-import \
         wcprof-report msgr-crypto",
    ),
    ("xtask", "wcprof-testkit"),
];

/// The part of `cargo metadata` that matters here.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

/// All packages, those of the workspace and those it depends on.
///
/// # Errors
/// When cargo fails.
pub fn metadata() -> Result<Metadata> {
    let json = capture(&mut cargo("metadata --format-version=1 --locked"))?;
    serde_json::from_str(&json).context("failed to parse the output of cargo metadata")
}

/// Findings among these packages.
pub fn check(metadata: &Metadata) -> Vec<String> {
    let may_use: HashMap<&str, &str> = MAY_USE.iter().copied().collect();
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        if !metadata.workspace_members.contains(&package.id) {
            let license = package.license.as_deref().unwrap_or("none stated");
            if !is_permitted(name, license) {
                findings.push(format!("{name}: license {license} is not permitted"));
            }
            continue;
        }
        let Some(permitted) = may_use.get(name) else {
            findings.push(format!(
                "{name}: not in the data flow; add it to xtask/src/tidy/dependencies.rs"
            ));
            continue;
        };
        for used in &package.dependencies {
            let used = used.name.as_str();
            if may_use.contains_key(used) && !permitted.split(' ').any(|name| name == used) {
                findings.push(format!("{name}: uses {used}, against the data flow"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the table itself goes one way.
    #[test]
    fn table_is_ordered() {
        for (at, (name, used)) in MAY_USE.iter().enumerate() {
            for used in used.split_whitespace() {
                let before = &MAY_USE[..at];
                assert!(
                    before.iter().any(|(other, _)| *other == used),
                    "{name} uses {used}"
                );
            }
        }
    }

    /// Check that wrong edges, unknown crates and other licenses are found, and right ones pass.
    #[test]
    fn findings() {
        let json = r#"{"workspace_members": ["a", "b", "c"], "packages": [
            {"id": "a", "name": "wcprof-trace", "license": null, "dependencies": [{"name": "wcprof-types"}]},
            {"id": "b", "name": "wcprof-types", "license": null, "dependencies": [{"name": "wcprof-trace"}]},
            {"id": "c", "name": "other", "license": null, "dependencies": []},
            {"id": "d", "name": "copyleft", "license": "GPL-3.0-only", "dependencies": []},
            {"id": "e", "name": "free", "license": "MIT", "dependencies": []}]}"#;
        let findings = check(&serde_json::from_str(json).unwrap());
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("against the data flow"));
    }
}
