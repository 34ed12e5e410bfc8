//! `cargo xtask picture`: a trace of a real OSD to the pictures of the README: the first screen of the HTML page,
//! and a flame graph, as Chromium draws them.

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::process::{
    build_release, capture, command, execute, find_chromium, quoted, result_folder, root,
};

/// A larger picture makes the README slow to open.
const MAX_BYTES: u64 = 200_000;

/// Pixels.
const WIDTH: u32 = 1400;
/// Pixels of the page's first screen.
const PAGE_HEIGHT: u32 = 800;

/// What `wcprof report` makes, and its flags.
const PICTURES: &[(&str, &str)] = &[
    ("page.html", "--format html"),
    ("flame.svg", "--format svg --state on-cpu --by pool"),
];

/// A trace of a real OSD.
const TRACE: &str = "fixtures/traces/story-4-secure-osd.wct";

/// Writes `docs/picture-*.png`.
///
/// # Errors
/// When Chromium is not installed, or a picture is too large.
pub fn run() -> Result<()> {
    let chromium = find_chromium();
    let chromium = chromium.context("chromium is not installed: `cargo xtask setup --viewers`")?;
    let wcprof = build_release()?;
    let trace = quoted(root().join(TRACE));
    for (file, flags) in PICTURES {
        let shown = result_folder("picture")?.join(file);
        let path = quoted(&shown);
        execute(command(&format!(
            "{wcprof} report {trace} {flags} --force -o {path}"
        )))?;
        // A flame graph says how high it is.
        let height = fs::read_to_string(&shown)?
            .split_once(" height=\"")
            .filter(|_| file.ends_with(".svg"))
            .and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
            .unwrap_or(PAGE_HEIGHT);
        let name = file.split('.').next().unwrap_or_default();
        let picture = root().join(format!("docs/picture-{name}.png"));
        capture(command(&format!(
            "{chromium} --headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking \
             --virtual-time-budget=10000 --window-size={WIDTH},{height} --screenshot={} file://{path}",
            quoted(&picture)
        )))?;
        let bytes = fs::metadata(&picture)?.len();
        println!("{}: {bytes} bytes", picture.display());
        ensure!(bytes <= MAX_BYTES, "more than {MAX_BYTES} bytes");
    }
    Ok(())
}
