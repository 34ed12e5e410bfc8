//! The promises of `docs/reliability.md` to those without a test that exists.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

const PAGE: &str = "docs/reliability.md";

/// Findings of the page, whose tests are among these files.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE))?;
    let mut findings = Vec::new();
    for (promise, tests) in promises(&page) {
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        let names = names.into_iter().filter(|name| name.contains("::"));
        let names: Vec<&str> = names.collect();
        if names.is_empty() {
            findings.push(format!("{PAGE}: no test of `{promise}`"));
        }
        for name in names {
            if !exists(root, files, name)? {
                findings.push(format!("{PAGE}: there is no test {name}"));
            }
        }
    }
    Ok(findings)
}

/// Rows of tables whose second column is `Tests`, without their heads.
fn promises(page: &str) -> Vec<(&str, &str)> {
    let mut rows = Vec::new();
    let mut is_promise = false;
    for line in page.lines() {
        let Some(row) = line
            .strip_prefix("| ")
            .and_then(|row| row.strip_suffix(" |"))
        else {
            is_promise &= line.starts_with('|');
            continue;
        };
        match row.rsplit_once(" | ") {
            Some((_, "Tests")) => is_promise = true,
            Some(row) if is_promise => rows.push(row),
            _ => {}
        }
    }
    rows
}

/// Whether there is a function of this name where its path says: `waiting::MODULE::NAME`, `CRATE::NAME`.
fn exists(root: &Path, files: &[PathBuf], path: &str) -> Result<bool> {
    let (first, rest) = path.split_once("::").unwrap_or_default();
    let (modules, name) = rest.rsplit_once("::").unwrap_or(("", rest));
    let folder = match first {
        "waiting" | "running" => format!("tests/{first}"),
        "it" => "crates/wcprof/tests/it".to_owned(),
        "cli" => "crates/wcprof/src".to_owned(),
        of_wcprof => format!("crates/wcprof-{of_wcprof}"),
    };
    let folder = PathBuf::from(folder).join(modules.replace("::", "/"));
    // A path that ends with a separator is another one.
    let folder: PathBuf = folder.components().collect();
    let is_there = |file: &&PathBuf| {
        let is_source = file.extension().is_some_and(|ending| ending == "rs");
        is_source && (file.starts_with(&folder) || file.with_extension("") == folder)
    };
    let beginning = format!("fn {name}(");
    for file in files.iter().filter(is_there) {
        if fs::read_to_string(root.join(file))?.contains(&beginning) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a promise without a test is found, and one whose test is not there, and that other tables are none.
    #[test]
    fn found() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            PAGE,
            "| Promise | Tests |\n|---|---|\n| a | `waiting::life::b` `net::c`* |\n| d | by hand |\n| e | `net::f` |\n\n\
             | Other | Table |\n|---|---|\n| g | h |\n",
        );
        write("tests/waiting/life.rs", "pub(crate) fn b(engine: Engine) {");
        write("crates/wcprof-net/src/deep/er.rs", "fn c() {");
        let files = [
            "tests/waiting/life.rs",
            "crates/wcprof-net/src/deep/er.rs",
            PAGE,
        ];
        let files = files.map(PathBuf::from);
        assert_eq!(
            check(root.path(), &files).unwrap(),
            [
                format!("{PAGE}: no test of `d`"),
                format!("{PAGE}: there is no test net::f"),
            ]
        );
    }
}
