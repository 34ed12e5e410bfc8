//! What keeps a clone small, fixtures explained, and frozen ones as they are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use crate::process::command;

const MAX_FILE: u64 = 1 << 20;
const MAX_FIXTURES: u64 = 5 << 20;
/// Files that never change once their format is released.
const FROZEN: &str = "fixtures/formats";
const SUMS: &str = "SHA256SUMS";

/// Findings among these files.
///
/// # Errors
/// When a file cannot be examined.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let sized = files
        .iter()
        .map(|file| Ok((&**file, fs::metadata(root.join(file))?.len())));
    let mut findings = findings_among(&sized.collect::<Result<Vec<_>>>()?);
    findings.extend(changed(&root.join(FROZEN))?);
    let sums = fs::read_to_string(root.join(FROZEN).join(SUMS))?;
    findings.extend(unlisted(files, &sums));
    Ok(findings)
}

/// Files of a folder that are not what its checksums say.
fn changed(folder: &Path) -> Result<Vec<String>> {
    let mut check = command("sha256sum --check --strict --quiet");
    let output = check.arg(SUMS).current_dir(folder).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut findings: Vec<String> = text
        .lines()
        .map(|line| format!("{FROZEN}/{line}: a frozen file; a released format does not change"))
        .collect();
    if !output.status.success() && findings.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        findings.push(format!("{FROZEN}/{SUMS}: {}", why.trim()));
    }
    Ok(findings)
}

/// Frozen files that have no checksum.
fn unlisted(files: &[PathBuf], sums: &str) -> Vec<String> {
    let listed = |name: &str| {
        sums.lines()
            .any(|line| line.ends_with(&format!("  {name}")))
    };
    let names = files.iter().filter_map(|file| {
        let name = file.strip_prefix(FROZEN).ok()?.to_str()?;
        (!["README.md", SUMS].contains(&name) && !listed(name)).then_some(name)
    });
    names
        .map(|name| format!("{FROZEN}/{name}: not in {SUMS}; `sha256sum {name}` makes its line"))
        .collect()
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

    /// Check that a frozen file that was changed, removed or added is found.
    #[test]
    fn frozen() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("v1.wct", "abc");
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  v1.wct\n";
        write(SUMS, sum);
        assert_eq!(changed(folder.path()).unwrap().len(), 0);
        write("v1.wct", "abd");
        assert_eq!(changed(folder.path()).unwrap().len(), 1);
        fs::remove_file(folder.path().join("v1.wct")).unwrap();
        assert_eq!(changed(folder.path()).unwrap().len(), 1);
        let files = ["v1.wct", "v2.wct", "README.md"].map(|name| Path::new(FROZEN).join(name));
        assert_eq!(unlisted(&files, sum).len(), 1);
    }
}
