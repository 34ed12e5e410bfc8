//! The crates that cargo resolves for a program to a bill of materials (CycloneDX 1.5, JSON): which code of others is in it.
//!
//! Without a serial number and a time, so that the same commit gives the same bytes.

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::{Value, json};

use super::build::{Dist, Program};
use crate::process::{capture, cargo};

/// Writes `NAME.cdx.json` beside the program, and returns it.
pub fn write(dist: &Dist, program: &Program) -> Result<Value> {
    let Program {
        name,
        platform,
        features,
    } = program;
    let tree = capture(dist.command(cargo(&format!(
        "tree --locked --package wcprof {features} --target {platform} --edges normal,no-proc-macro --prefix none \
         --format '{{p}}|{{l}}'"
    ))))?;
    let bom = bill(name, &tree)?;
    let text = serde_json::to_string_pretty(&bom)? + "\n";
    fs::write(dist.files.join(format!("{name}.cdx.json")), text)?;
    Ok(bom)
}

/// Lines `name vVERSION [(path)] [(*)]|LICENSE` to a document. The first is the program; those with a path are its own parts.
fn bill(program: &str, tree: &str) -> Result<Value> {
    let mut lines: Vec<&str> = tree.lines().collect();
    let own = lines
        .first()
        .copied()
        .context("cargo tree printed nothing")?;
    lines.sort_unstable();
    let mut components = Vec::new();
    for line in lines.into_iter().filter(|line| !line.contains(" (/")) {
        let (name, version, license) = parts(line)?;
        let component = json!({
            "type": "library",
            "bom-ref": format!("pkg:cargo/{name}@{version}"),
            "name": name,
            "version": version,
            "licenses": [{"expression": license}],
            "purl": format!("pkg:cargo/{name}@{version}"),
        });
        // A crate that several others use has several lines.
        if components.last() != Some(&component) {
            components.push(component);
        }
    }
    let (_, version, license) = parts(own)?;
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": program,
            "name": program,
            "version": version,
            "licenses": [{"expression": license}],
        }},
        "components": components,
    }))
}

/// Name, version and license of a line. Before SPDX expressions, alternatives were separated by a slash.
fn parts(line: &str) -> Result<(&str, &str, String)> {
    let unexpected = || format!("cargo tree printed an unexpected line: {line:?}");
    let (package, license) = line.split_once('|').with_context(unexpected)?;
    let mut words = package.split(' ');
    let name = words.next().with_context(unexpected)?;
    let version = words.next().and_then(|word| word.strip_prefix('v'));
    // `(*)` after a package that was printed before.
    let license = license.trim_end_matches(" (*)").replace('/', " OR ");
    Ok((name, version.with_context(unexpected)?, license))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each crate of others is there once, with a license in SPDX's form, and that parts of the program are not.
    #[test]
    fn bills() {
        let tree = "wcprof v0.1.0 (/home/me/crates/wcprof)|MIT OR Apache-2.0\n\
            wcprof-text v0.1.0 (/home/me/crates/wcprof-text)|MIT OR Apache-2.0\n\
            memchr v2.7.1|Unlicense/MIT\nlibc v0.2.1|MIT OR Apache-2.0\nmemchr v2.7.1|Unlicense/MIT (*)\n";
        let bill = bill("wcprof", tree).unwrap();
        assert_eq!(bill["metadata"]["component"]["version"], "0.1.0");
        let components = bill["components"].as_array().unwrap();
        let names: Vec<_> = components.iter().map(|one| &one["purl"]).collect();
        assert_eq!(names, ["pkg:cargo/libc@0.2.1", "pkg:cargo/memchr@2.7.1"]);
        assert_eq!(
            components[1]["licenses"][0]["expression"],
            "Unlicense OR MIT"
        );
        assert!(!bill.to_string().contains("/home"));
    }

    /// Check that an output of another form is an error, not an empty bill.
    #[test]
    fn unexpected() {
        for tree in ["", "wcprof", "wcprof 0.1.0|MIT"] {
            assert!(bill("wcprof", tree).is_err(), "{tree:?}");
        }
    }
}
