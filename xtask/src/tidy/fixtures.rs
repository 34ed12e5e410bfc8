//! What keeps a clone small, and fixtures explained.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

const MAX_FILE: u64 = 1 << 20;
const MAX_FIXTURES: u64 = 5 << 20;

/// Findings among these files.
///
/// # Errors
/// When a file cannot be examined.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let sized = files
        .iter()
        .map(|file| Ok((&**file, fs::metadata(root.join(file))?.len())));
    Ok(findings_among(&sized.collect::<Result<Vec<_>>>()?))
}

/// `files` with their sizes in bytes.
fn findings_among(files: &[(&Path, u64)]) -> Vec<String> {
    let (fixtures, others): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|(file, _)| file.starts_with("fixtures"));
    let large = others.into_iter().filter(|(_, size)| *size > MAX_FILE);
    let mut findings: Vec<String> = large
        .map(|(file, size)| {
            let file = file.display();
            format!("{file}: {size} bytes; {MAX_FILE} is the most outside fixtures")
        })
        .collect();
    let sum: u64 = fixtures.iter().map(|(_, size)| size).sum();
    if sum > MAX_FIXTURES {
        findings.push(format!(
            "fixtures: {sum} bytes in all; {MAX_FIXTURES} is the most"
        ));
    }
    let folder =
        |file: &Path| Some(file.parent()?.to_owned()).filter(|f| *f != Path::new("fixtures"));
    let notes = fixtures
        .iter()
        .filter(|(file, _)| file.extension().is_some_and(|e| e == "md"));
    let explained: BTreeSet<PathBuf> = notes.filter_map(|(file, _)| folder(file)).collect();
    let folders: BTreeSet<PathBuf> = fixtures
        .iter()
        .filter_map(|(file, _)| folder(file))
        .collect();
    // A note may also stand in a folder above.
    let is_explained =
        |folder: &&PathBuf| folder.ancestors().any(|above| explained.contains(above));
    for folder in folders.iter().filter(|folder| !is_explained(folder)) {
        findings.push(format!(
            "{}: no README.md says how its files were made",
            folder.display()
        ));
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
