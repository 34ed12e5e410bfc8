//! Which crate may use which: data flows one way, and outside code has a permissive license.

use std::collections::HashMap;

use serde_json::Value;

use super::license::is_permitted;
use crate::process::{list, text};

/// What each crate may use, in the order of the data flow; `*` is all above. Tests obey it, too.
const MAY_USE: &str = "\
itanium-demangle:
dwarf-stream:
wcprof-text:
wcprof-types:
wcprof-net: wcprof-text
wcprof-host: wcprof-types
wcprof-perf: dwarf-stream wcprof-types wcprof-host
wcprof-capture: wcprof-types wcprof-host wcprof-perf
wcprof-unwind: dwarf-stream wcprof-types
wcprof-trace: wcprof-types
wcprof-testkit: wcprof-types wcprof-trace
wcprof-record: wcprof-types wcprof-host wcprof-capture wcprof-unwind wcprof-trace
wcprof-symbols: itanium-demangle dwarf-stream wcprof-types wcprof-net wcprof-host wcprof-trace
wcprof-profile: wcprof-types wcprof-trace
wcprof-findings: wcprof-text wcprof-types wcprof-trace wcprof-testkit wcprof-profile
wcprof-doctor: wcprof-text wcprof-types wcprof-findings
wcprof-report: wcprof-text wcprof-types wcprof-trace wcprof-testkit wcprof-profile wcprof-findings
wcprof-export: wcprof-text wcprof-types wcprof-trace wcprof-profile wcprof-report
wcprof-parquet: wcprof-text wcprof-types wcprof-trace wcprof-profile wcprof-export
wcprof-import: wcprof-types wcprof-unwind wcprof-trace wcprof-symbols
slow-disk:
wcprof-demo: slow-disk
msgr-crypto-ffi:
msgr-crypto: wcprof-text msgr-crypto-ffi
wcprof: *
wcprof-benches: msgr-crypto-ffi msgr-crypto
wcprof-fuzz: itanium-demangle dwarf-stream wcprof-types wcprof-host wcprof-perf wcprof-capture wcprof-unwind \
    wcprof-trace wcprof-symbols wcprof-profile wcprof-findings wcprof-import wcprof-report msgr-crypto
xtask: wcprof-testkit
";

/// Findings among all packages, those of the workspace and those it depends on; `metadata` is what `cargo
/// metadata` prints.
pub fn check(metadata: &Value) -> Vec<String> {
    let may_use = may_use();
    let mut findings = Vec::new();
    for package in list(&metadata["packages"]) {
        let name = text(&package["name"]);
        if !list(&metadata["workspace_members"]).any(|id| *id == package["id"]) {
            let license = text(&package["license"]);
            if !is_permitted(name, license) {
                findings.push(format!("{name}: license `{license}` is not permitted"));
            }
            continue;
        }
        let Some(permitted) = may_use.get(name) else {
            let file = "xtask/src/tidy/dependencies.rs";
            findings.push(format!("{name}: not in the data flow; add it to {file}"));
            continue;
        };
        let used = list(&package["dependencies"]).map(|used| text(&used["name"]));
        let wrong = used.filter(|used| may_use.contains_key(used) && !permitted.contains(used));
        findings.extend(wrong.map(|used| format!("{name}: uses {used}, against the data flow")));
    }
    findings
}

/// Each crate with those that it may use.
fn may_use() -> HashMap<&'static str, Vec<&'static str>> {
    let mut above = Vec::new();
    let lines = MAY_USE.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, used)| {
            let used = match used.trim() {
                "*" => above.clone(),
                used => used.split_whitespace().collect(),
            };
            above.push(name);
            (name, used)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the table itself goes one way.
    #[test]
    fn table_is_ordered() {
        let may_use = may_use();
        let names: Vec<&str> = MAY_USE
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0))
            .collect();
        for (at, name) in names.iter().enumerate() {
            for used in &may_use[name] {
                assert!(names[..at].contains(used), "{name} uses {used}");
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
