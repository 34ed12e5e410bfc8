//! The crates in bills of materials to their license texts, which must go with the programs: one file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::Value;

use super::build::{Dist, file_names};
use crate::process::{capture_json, cargo, list, text};

/// Name of the file.
pub const FILE: &str = "THIRD-PARTY-LICENSES.txt";

/// Names of files with a license start with one of these, in capitals or not.
const LICENSES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Writes the file beside the programs.
///
/// # Errors
/// When a crate's sources are not where cargo says.
pub fn write(dist: &Dist, bills: &[Value]) -> Result<()> {
    // Whatever features a program is built with.
    let words = "metadata --locked --all-features --format-version 1";
    let metadata = capture_json(dist.command(cargo(words)))?;
    let folders: HashMap<(&str, &str), PathBuf> = list(&metadata["packages"])
        .map(|package| {
            let manifest = Path::new(text(&package["manifest_path"]));
            let folder = manifest.with_file_name("");
            ((text(&package["name"]), text(&package["version"])), folder)
        })
        .collect();
    let (mut texts, mut without) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeSet::new());
    for component in bills.iter().flat_map(|bill| list(&bill["components"])) {
        let (name, version) = (text(&component["name"]), text(&component["version"]));
        let folder = folders.get(&(name, version));
        let folder = folder.with_context(|| format!("cargo metadata has no {name} {version}"))?;
        let license = text(&component["licenses"][0]["expression"]);
        let title = format!("{name} {version} ({license})");
        let found = texts_in(folder)?;
        if found.is_empty() {
            without.insert(title.clone());
        }
        for text in found {
            texts.entry(text).or_default().insert(title.clone());
        }
    }
    fs::write(dist.files.join(FILE), page(&texts, &without))?;
    Ok(())
}

/// License texts in a crate's folder.
fn texts_in(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for name in file_names(folder)? {
        let file = folder.join(&name);
        let lower = name.to_lowercase();
        if LICENSES.iter().any(|start| lower.starts_with(start)) && file.is_file() {
            texts.push(fs::read_to_string(file)?.trim().to_owned());
        }
    }
    Ok(texts)
}

/// Each text once, below the crates that have it.
fn page(texts: &BTreeMap<String, BTreeSet<String>>, without: &BTreeSet<String>) -> String {
    let mut page = String::from(
        "Code of others in wcprof and wcprof-crypto, and its licenses. The sources are on https://crates.io/.\n",
    );
    let lines = |crates: &BTreeSet<String>| {
        let lines: Vec<&str> = crates.iter().map(String::as_str).collect();
        lines.join("\n")
    };
    for (text, crates) in texts {
        let rule = "=".repeat(80);
        page += &format!("\n{rule}\n{}\n\n{text}\n", lines(crates));
    }
    if !without.is_empty() {
        page += &format!("\nWithout a text of their own:\n{}\n", lines(without));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a text that several crates share is there once, with all of them, and that none is left out.
    #[test]
    fn pages() {
        let crates = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let texts = BTreeMap::from([
            ("Permission".to_owned(), crates(&["a 1 (MIT)", "b 2 (MIT)"])),
            ("Redistribution".to_owned(), crates(&["c 3 (BSD-3-Clause)"])),
        ]);
        let page = page(&texts, &crates(&["d 4 (MIT)"]));
        assert_eq!(page.matches("Permission").count(), 1);
        for title in ["a 1 (MIT)\nb 2 (MIT)\n\nPermission", "c 3", "d 4"] {
            assert!(page.contains(title), "{title}");
        }
    }

    /// Check that license files are found by name, and other files are not.
    #[test]
    fn license_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "COPYING", "lib.rs", "README.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(texts_in(folder.path()).unwrap(), ["COPYING", "LICENSE-MIT"]);
    }
}
