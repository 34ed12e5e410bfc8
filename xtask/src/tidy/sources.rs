//! What every Rust file keeps: a module doc, bounded lengths, no loops, and no `unsafe` outside few crates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use super::code::Code;
use super::{loops, types};

const MAX_LINES: usize = 800;
const MAX_MEDIAN_LINES: usize = 200;

/// The only places with `unsafe`: those that call the kernel, the one that calls libcrypto, and the first
/// process of a virtual machine.
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/wcprof-host/",
    "crates/wcprof-perf/",
    "crates/wcprof-capture/",
    "crates/msgr-crypto-ffi/",
    "xtask/vm/",
];

/// Code beside live processes, which opens files in one place alone: where there are limits, and nothing hangs.
const OPENS_NOTHING: &[&str] = &[
    "crates/wcprof-host/",
    "crates/wcprof-perf/",
    "crates/wcprof-capture/",
    "crates/wcprof-record/",
    "crates/wcprof-symbols/",
    "crates/wcprof/src/bin/wcprof-crypto/",
];
const OPENS_FILES: &[&str] = &[
    "crates/wcprof-host/src/open/",
    "crates/wcprof-host/src/procfs/text.rs",
];

/// Findings in these files.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let mut lengths = Vec::new();
    let mut crates: BTreeMap<&Path, Vec<(&Path, Code)>> = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "rs"))
    {
        let text = fs::read_to_string(root.join(file))?;
        let name = file.to_string_lossy();
        let mut found = findings_in(&name, &text);
        lengths.push(text.lines().count());
        if let Some((folder, below)) = in_crate(file) {
            let mut code = Code::parse(&text);
            found.extend(opened_in(&name, &code));
            found.append(&mut code.findings);
            crates.entry(folder).or_default().push((below, code));
        }
        findings.extend(found.into_iter().map(|text| format!("{name}: {text}")));
    }
    let product = crates
        .iter()
        .filter(|(folder, _)| folder.starts_with("crates"));
    let types: Vec<(String, String)> = product
        .flat_map(|(folder, files)| files.iter().map(move |file| (folder, file)))
        .flat_map(|(folder, (below, code))| {
            let file = folder.join("src").join(below).display().to_string();
            let names = code.types.iter();
            names.map(move |name| (file.clone(), name.clone()))
        })
        .collect();
    findings.extend(types::check(&types));
    for (folder, files) in &crates {
        let loops = loops::check(files).into_iter();
        findings.extend(loops.map(|text| format!("{}: {text}", folder.display())));
    }
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
    if median > MAX_MEDIAN_LINES {
        findings.push(format!(
            "the median file has {median} lines; {MAX_MEDIAN_LINES} is the most"
        ));
    }
    Ok(findings)
}

/// The folder of a file's crate, and its path below the crate's `src/`, if it is no test.
fn in_crate(file: &Path) -> Option<(&Path, &Path)> {
    let src = file.ancestors().find(|folder| folder.ends_with("src"))?;
    let below = file.strip_prefix(src).ok()?;
    let is_test =
        below.components().any(|part| part.as_os_str() == "tests") || below.ends_with("tests.rs");
    (!is_test).then_some((src.parent()?, below))
}

/// Calls that open a file where that is done in another place.
fn opened_in(name: &str, code: &Code) -> Vec<String> {
    let is_in = |places: &[&str]| places.iter().any(|place| name.starts_with(place));
    if !is_in(OPENS_NOTHING) || is_in(OPENS_FILES) {
        return Vec::new();
    }
    let opens = |path: &&String| {
        let calls = ["File::open", "fs::read", "fs::read_to_string"];
        calls.iter().any(|call| path.ends_with(call))
    };
    let text = |path: &String| {
        format!(
            "`{path}`: files are opened in {}",
            OPENS_FILES.join(" and ")
        )
    };
    code.paths.iter().filter(opens).map(text).collect()
}

fn findings_in(name: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push("does not start with a `//!` comment that says what it does".to_owned());
    }
    let n_lines = text.lines().count();
    if n_lines > MAX_LINES {
        findings.push(format!(
            "{n_lines} lines; split it, {MAX_LINES} is the most"
        ));
    }
    if MAY_BE_UNSAFE.iter().any(|prefix| name.starts_with(prefix)) {
        return findings;
    }
    for (index, line) in text.lines().enumerate() {
        if is_unsafe(line) {
            findings.push(format!(
                "line {} is unsafe; only {} may be",
                index + 1,
                MAY_BE_UNSAFE.join(" and ")
            ));
        }
    }
    if is_crate_root(name) && !text.contains("#![forbid(unsafe_code)]") {
        findings.push("lacks `#![forbid(unsafe_code)]`".to_owned());
    }
    findings
}

/// Whether a line of code opens an unsafe block, function, trait, impl or attribute.
fn is_unsafe(line: &str) -> bool {
    // A comment, also one behind code, opens nothing. A `//` inside a string hides what follows
    // it, but then `#![forbid(unsafe_code)]` still does not.
    let code = format!(" {}", line.split("//").next().unwrap_or_default());
    let next = [" {", " fn", " impl", " trait", " extern", "("];
    next.iter()
        .any(|next| code.contains(&format!(" unsafe{next}")))
}

fn is_crate_root(name: &str) -> bool {
    name.ends_with("src/lib.rs")
        || name.ends_with("src/main.rs")
        || name.starts_with("tests/") && name.ends_with("/main.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_findings(name: &str, text: &str) -> usize {
        findings_in(name, text).len()
    }

    /// Check that a short documented module passes, also one that speaks of unsafe code.
    #[test]
    fn passes() {
        let text = "//! A to B.\n// unsafe { } is not here\nfn not_unsafe() {}\n";
        assert_eq!(n_findings("crates/a/src/b.rs", text), 0);
    }

    /// Check that opening a file is found beside live processes, but in tests and in the one place.
    #[test]
    fn opened() {
        let call = "fn f() {\n    std::fs::read_to_string(path)?;\n    File::open(path)?;\n}\n";
        let code = Code::parse(call);
        assert_eq!(opened_in("crates/wcprof-record/src/a.rs", &code).len(), 2);
        assert_eq!(
            opened_in("crates/wcprof-host/src/open/a.rs", &code).len(),
            0
        );
        assert_eq!(opened_in("crates/wcprof-report/src/a.rs", &code).len(), 0);
        let test = Code::parse(&format!("#[cfg(test)]\nmod tests {{\n{call}}}\n"));
        assert_eq!(opened_in("crates/wcprof-record/src/a.rs", &test).len(), 0);
    }

    /// Check that each broken rule is one finding.
    #[test]
    fn findings() {
        assert_eq!(n_findings("a/src/b.rs", "fn a() {}\n"), 1);
        assert_eq!(n_findings("a/src/b.rs", &"//! A.\n".repeat(801)), 1);
        let block = format!("//! A.\nfn a() {{ {} {{ b() }} }}\n", "unsafe");
        assert_eq!(n_findings("a/src/b.rs", &block), 1);
        assert_eq!(n_findings("crates/wcprof-capture/src/b.rs", &block), 0);
        assert_eq!(n_findings("a/src/lib.rs", "//! A.\n"), 1);
    }
}
