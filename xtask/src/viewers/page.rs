//! The HTML page in Chromium: what it shows, that search and keys work, that it asks for nothing, and
//! how long it takes to open, also of 140 threads and 60 s, and of 22.9 million thread-samples.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{capture, capture_json, cargo_example, command, root};

/// Pages, each with the processes and seconds for which a recording of an OSD is repeated.
const LARGE: &[(&str, &str, &str)] = &[
    ("page-140-threads-60s.html", "2", "60"),
    ("page-4200-threads-60s.html", "60", "60"),
];

/// Opens `page.html` and pages of large traces.
///
/// # Errors
/// When a page shows something else than it should, or shows errors.
pub(super) fn check(folder: &Path, chromium: &Path, program: &Path, trace: &Path) -> Result<()> {
    let generated = folder.join("generated.wct");
    for (name, copies, seconds) in LARGE {
        let mut generate = cargo_example("wcprof-trace", "generate");
        generate.args(["copies", copies, seconds]);
        capture(generate.arg(trace).arg(&generated))?;
        let mut report = Command::new(program);
        report.arg("report").arg(&generated);
        report.args(["--format", "html", "-o"]);
        capture(report.arg(folder.join(name)))?;
    }
    fs::remove_file(&generated)?;
    let names = ["page.html"].into_iter().chain(LARGE.iter().map(|l| l.0));
    let mut node = command("node xtask/viewers/page.mjs");
    node.current_dir(root());
    node.arg(chromium)
        .arg(folder)
        .arg(folder)
        .args(names.clone());
    let found = capture_json(&mut node)?;
    for name in names {
        let bytes = fs::metadata(folder.join(name))?.len();
        println!("{name}: {bytes} bytes, {}", found[name]);
        ensure!(bytes <= 5_000_000, "{name} is larger than 5 MB");
    }
    shown(&found["page.html"])?;
    println!(
        "page: shows what it should; see the screenshots in `{}`",
        folder.display()
    );
    Ok(())
}

/// What was seen of the page of one OSD.
fn shown(page: &Value) -> Result<()> {
    for list in ["errors", "requests"] {
        let list = &page[list];
        ensure!(
            list.as_array().is_some_and(Vec::is_empty),
            "errors or requests: {list}"
        );
    }
    let number = |value: &Value| value.as_i64().unwrap_or(-1);
    for (what, least) in [
        ("findings", 3),
        ("open_findings", 1),
        ("groups", 5),
        ("frames", 50),
        ("rows", 10),
        ("lanes", 5),
        ("modules", 3),
        ("unfolded", 1),
        ("lanes_unfolded", 1),
        ("pixels", 100),
    ] {
        let n = number(&page[what]);
        ensure!(n >= least, "{n} {what}, not {least}: {page}");
    }
    for (value, wanted) in [
        (&page["folded"], 0),
        (&page["overflow"], 0),
        (&page["search"]["after"], 0),
        (&page["zoomed"]["after"], 0),
        (&page["zoomed"]["above"], 3),
    ] {
        ensure!(number(value) == wanted, "{value}, not {wanted}: {page}");
    }
    let search = &page["search"];
    ensure!(
        number(&search["hits"]) > 0 && number(&search["rows"]) > 0,
        "{search}"
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ensure!(text(&search["address"]).contains("q=futex"), "{search}");
    ensure!(text(&search["current"]).contains("futex"), "{search}");
    ensure!(text(&page["followed"]["query"]).starts_with('='), "{page}");
    ensure!(text(&page["followed"]["found"]).contains("place"), "{page}");
    ensure!(text(&page["lane"]).contains('%'), "{page}");
    ensure!(
        page["themes"] == serde_json::json!(["light", "light", "dark"]),
        "{page}"
    );
    ensure!(page["help"] == true, "{page}");
    Ok(())
}
