//! The HTML page in Chromium: what it shows, that search and keys work, that it asks for nothing, and
//! how long it takes to open, also of 140 threads and 60 s, and of 22.9 million thread-samples.

use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;
use serde_json::{Value, json};

use crate::process::{capture, cargo_example, command, quoted, text};

/// Pages, each with the processes and seconds for which a recording of an OSD is repeated.
const LARGE: &[(&str, u32, u32)] = &[
    ("page-140-threads-60s.html", 2, 60),
    ("page-4200-threads-60s.html", 60, 60),
];

/// How many of each the page of one OSD shows at least.
const LEAST: &[(&str, i64)] = &[
    ("/findings", 3),
    ("/open_findings", 1),
    ("/groups", 5),
    ("/frames", 50),
    ("/rows", 10),
    ("/lanes", 5),
    ("/modules", 3),
    ("/unfolded", 1),
    ("/lanes_unfolded", 1),
    ("/pixels", 100),
    ("/search/hits", 1),
    ("/search/rows", 1),
];

/// Which texts hold what.
const TEXTS: &[(&str, &str)] = &[
    ("/search/address", "q=futex"),
    ("/search/current", "futex"),
    ("/followed/query", "="),
    ("/followed/found", "place"),
    ("/lane", "%"),
];

/// Makes pages of large traces beside `page.html`. Returns the names of all.
///
/// # Errors
/// When a program fails.
pub(super) fn make(folder: &Path, wcprof: &str, trace: &str) -> Result<Vec<&'static str>> {
    let generated = folder.join("generated.wct");
    let file = quoted(&generated);
    let mut names = vec!["page.html"];
    for (name, copies, seconds) in LARGE {
        let line = format!("generate copies {copies} {seconds} {trace} {file}");
        capture(cargo_example("wcprof-trace", &line))?;
        let page = quoted(folder.join(name));
        capture(command(&format!(
            "{wcprof} report {file} --format html --force -o {page}"
        )))?;
        names.push(name);
    }
    fs::remove_file(&generated)?;
    Ok(names)
}

/// Checks what Chromium found in these pages.
///
/// # Errors
/// When a page shows something else than it should, or shows errors.
pub(super) fn check(folder: &Path, found: &Value) -> Result<()> {
    for (name, seen) in found.as_object().into_iter().flatten() {
        let bytes = fs::metadata(folder.join(name))?.len();
        println!("{name}: {bytes} bytes, {seen}");
        ensure!(bytes <= 5_000_000, "{name} is larger than 5 MB");
    }
    let page = &found["page.html"];
    let at = |path: &str| page.pointer(path).unwrap_or(&Value::Null);
    for (path, least) in LEAST {
        let n = at(path).as_i64().unwrap_or(-1);
        ensure!(n >= *least, "{path} is {n}, less than {least}");
    }
    for (path, part) in TEXTS {
        let shown = text(at(path));
        ensure!(
            shown.contains(part),
            "{path} is {shown:?}, without {part:?}"
        );
    }
    for (path, value) in [
        ("/errors", json!([])),
        ("/requests", json!([])),
        ("/folded", json!(0)),
        ("/overflow", json!(0)),
        ("/search/after", json!(0)),
        ("/zoomed/after", json!(0)),
        ("/zoomed/above", json!(3)),
        ("/themes", json!(["light", "light", "dark"])),
        ("/help", json!(true)),
    ] {
        ensure!(*at(path) == value, "{path} is {}, not {value}", at(path));
    }
    println!("page: shows what it should");
    Ok(())
}
