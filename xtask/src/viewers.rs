//! `cargo xtask viewers`: opens each export of a saved trace in the viewer that it is for, and compares
//! what that shows with what wcprof says.
//!
//! Needs `go tool pprof` (or `pprof`), and Node with npm for the packages speedscope, playwright-core and
//! `@firefox-devtools/profiler-cli`, which is the Firefox Profiler's own code without its page; and
//! Chromium. `cargo xtask setup --viewers` installs what Debian has. What is missing is printed as
//! skipped. Pages reach loopback alone.

mod firefox;
pub(crate) mod own;
mod page;
mod pprof;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::process::{
    build_release, capture_json, command, execute, find_chromium, is_installed, list, number,
    quoted, result_folder, root, text,
};
use own::{LISTED, OwnTimes};

/// What is exported.
const TRACE: &str = "fixtures/traces/ceph-osd-secure-randread.wct";

/// Packages and versions that were tried.
const PACKAGES: &[&str] = &[
    "speedscope@1.25.0",
    "playwright-core@1.65.1",
    "@firefox-devtools/profiler-cli@0.10.0",
];

/// Exports and their flags.
const EXPORTS: &[(&str, &str)] = &[
    ("pprof.pb.gz", "--format pprof"),
    ("speedscope.json", "--format speedscope"),
    ("firefox.json", "--format firefox"),
    ("folded.txt", "--format folded"),
    ("report.json", "--json --invert --by thread"),
    ("tree.json", "--json"),
    ("lines.json", "--json --lines --by thread"),
    ("svg.svg", "--format svg"),
    ("icicle.svg", "--format icicle"),
    ("inverted.svg", "--format svg --invert"),
    ("page.html", "--format html"),
];

/// Open the exports of a trace in their viewers.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Open the HTML page alone
    #[arg(long)]
    page: bool,
    /// Open all but the HTML page, which is also made of large traces
    #[arg(long, conflicts_with = "page")]
    exports: bool,
}

/// Runs the command.
///
/// # Errors
/// When an export fails, a viewer refuses it, or shows something else than wcprof does.
pub fn run(args: &Args) -> Result<()> {
    let wcprof = build_release()?;
    let folder = result_folder("viewers")?;
    let quoted_folder = quoted(&folder);
    let trace = quoted(root().join(TRACE));
    for (name, flags) in EXPORTS {
        let to = quoted(folder.join(name));
        let report = format!("{wcprof} report {trace} {flags} --force -o {to}");
        execute(command(&report))?;
    }
    let own = OwnTimes::read(&folder.join("report.json"))?;
    if !args.page {
        pprof::check(&folder, &own)?;
    }
    if !is_installed("npm") || !is_installed("node") {
        println!("SKIPPED pages and the Firefox Profiler: npm or node is not installed");
        return Ok(());
    }
    let npm = format!(
        "npm install --prefer-offline --ignore-scripts --no-audit --no-fund --prefix {quoted_folder}"
    );
    execute(command(&npm).args(PACKAGES))?;
    if !args.page {
        firefox::check(&folder, &own)?;
    }
    let Some(chromium) = find_chromium() else {
        println!("SKIPPED pages: chromium is not installed");
        return Ok(());
    };
    let node = |script: &str| {
        let script = quoted(root().join("xtask/viewers").join(script));
        command(&format!(
            "node {script} {chromium} {quoted_folder} {quoted_folder}"
        ))
    };
    if !args.page {
        pages(&capture_json(node("open.mjs"))?, &own)?;
    }
    if !args.exports {
        let names = page::make(&folder, &wcprof, &trace)?;
        page::check(&folder, &capture_json(node("page.mjs").args(&names))?)?;
    }
    println!("screenshots: {}", folder.display());
    Ok(())
}

/// Checks what Chromium found in pages.
fn pages(found: &Value, own: &OwnTimes) -> Result<()> {
    for (name, page) in found.as_object().into_iter().flatten() {
        println!("{name}: {page}");
        ensure!(
            list(&page["errors"]).next().is_none(),
            "{name} shows errors"
        );
    }
    let (first, n) = (&own.threads[0].0, own.threads.len());
    let shown = text(&found["speedscope.json"]["shown"]);
    ensure!(
        shown.contains(first) && shown.contains(&format!("(1/{n})")),
        "speedscope shows {shown:?} and not {first} as the first of {n}"
    );
    let (_, file) = LISTED[1];
    let selected = text(&found["speedscope.json"]["selected"]);
    ensure!(
        selected.contains(&format!("{file}:")),
        "speedscope says {selected:?} of a selected frame, without {file}"
    );
    for (name, root) in [
        ("svg.svg", "bottom"),
        ("icicle.svg", "top"),
        ("inverted.svg", "top"),
    ] {
        let page = &found[name];
        ensure!(
            page["all"] == page[root],
            "the root of {name} is not at the {root}"
        );
        ensure!(number(&page["frames"]) > 50.0, "{name} shows few frames");
        ensure!(
            number(&page["matched"]) > 0.0,
            "the search of {name} finds nothing"
        );
    }
    println!("pages: speedscope and the graphs show what they should");
    Ok(())
}
