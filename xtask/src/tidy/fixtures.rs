//! What keeps a clone small, and fixtures explained.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

const MAX_FILE: u64 = 1 << 20;
const MAX_FIXTURES: u64 = 5 << 20;

/// Findings among these files, by size in bytes.
///
/// # Errors
/// When a file can not be examined.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut sized = Vec::with_capacity(files.len());
    for file in files {
        sized.push((file.as_path(), fs::metadata(root.join(file))?.len()));
    }
    Ok(findings_among(&sized))
}

fn findings_among(files: &[(&Path, u64)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut fixtures = 0;
    let mut folders = BTreeSet::new();
    let mut explained = BTreeSet::new();
    for (file, size) in files {
        let Ok(fixture) = file.strip_prefix("fixtures") else {
            if *size > MAX_FILE {
                findings.push(format!(
                    "{}: {size} bytes; {MAX_FILE} is the most outside fixtures",
                    file.display()
                ));
            }
            continue;
        };
        fixtures += size;
        let Some(folder) = fixture.parent() else {
            continue;
        };
        if folder.as_os_str().is_empty() {
            continue;
        }
        folders.insert(folder);
        if file.extension().is_some_and(|e| e == "md") {
            explained.insert(folder);
        }
    }
    if fixtures > MAX_FIXTURES {
        findings.push(format!(
            "fixtures: {fixtures} bytes in all; {MAX_FIXTURES} is the most"
        ));
    }
    for folder in folders {
        // A note may also stand in a folder above.
        if !folder.ancestors().any(|above| explained.contains(above)) {
            findings.push(format!(
                "fixtures/{}: no README.md says how its files were made",
                folder.display()
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_findings(files: &[(&str, u64)]) -> usize {
        let files: Vec<_> = files.iter().map(|(f, n)| (Path::new(*f), *n)).collect();
        findings_among(&files).len()
    }

    /// Check that large files, too many fixtures and unexplained folders are found.
    #[test]
    fn findings() {
        assert_eq!(n_findings(&[("a.rs", MAX_FILE + 1)]), 1);
        assert_eq!(n_findings(&[("fixtures/a/b", 1)]), 1);
        let note = ("fixtures/a/README.md", 1);
        assert_eq!(n_findings(&[("fixtures/a/b", MAX_FILE + 1), note]), 0);
        assert_eq!(n_findings(&[("fixtures/a/c/b", 1), note]), 0);
        assert_eq!(n_findings(&[("fixtures/a/b", MAX_FIXTURES), note]), 1);
    }
}
