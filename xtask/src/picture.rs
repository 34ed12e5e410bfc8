//! `cargo xtask picture`: a trace of a real OSD to the pictures of the README: the first screen of the HTML page,
//! and a flame graph, as Chromium draws them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::process::{build_release, capture, execute, find_chromium, result_folder, root};

/// A larger picture makes the README slow to open.
const MAX_BYTES: u64 = 200_000;

/// Pixels.
const WIDTH: u32 = 1400;
/// Pixels of the page's first screen.
const PAGE_HEIGHT: u32 = 800;

/// What `wcprof report` makes, and its flags.
const PICTURES: &[(&str, &str)] = &[
    ("page.html", "--format html"),
    (
        "flame.svg",
        "--format svg --state on-cpu --by pool --names short",
    ),
];

/// Make the pictures of the README.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Trace to show
    #[arg(long, default_value = "fixtures/traces/story-4-secure-osd.wct")]
    trace: PathBuf,
    /// wcprof to run; built when not given
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Writes `docs/picture-*.png`.
///
/// # Errors
/// When Chromium is not installed, or a picture is too large.
pub fn run(args: &Args) -> Result<()> {
    let chromium = find_chromium();
    let chromium = chromium.context("chromium is not installed: `cargo xtask setup --viewers`")?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => build_release()?,
    };
    for (file, flags) in PICTURES {
        let shown = result_folder("picture")?.join(file);
        let mut report = Command::new(&program);
        report.arg("report").arg(root().join(&args.trace));
        execute(report.args(flags.split(' ')).arg("-o").arg(&shown))?;
        // A flame graph says how high it is.
        let height = fs::read_to_string(&shown)?
            .split_once(" height=\"")
            .filter(|_| file.ends_with(".svg"))
            .and_then(|(_, rest)| rest.split('"').next()?.parse().ok())
            .unwrap_or(PAGE_HEIGHT);
        let name = file.split('.').next().unwrap_or_default();
        let picture = root().join(format!("docs/picture-{name}.png"));
        draw(&chromium, &shown, height, &picture)?;
        let bytes = fs::metadata(&picture)?.len();
        println!("{}: {bytes} bytes", picture.display());
        ensure!(bytes <= MAX_BYTES, "more than {MAX_BYTES} bytes");
    }
    Ok(())
}

/// Opens a file in Chromium, and writes what the window shows as PNG.
fn draw(chromium: &Path, file: &Path, height: u32, picture: &Path) -> Result<()> {
    let flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking \
         --virtual-time-budget=10000";
    let mut chromium = Command::new(chromium);
    chromium.args(flags.split(' '));
    chromium.arg(format!("--window-size={WIDTH},{height}"));
    chromium.arg(format!("--screenshot={}", picture.display()));
    capture(chromium.arg(format!("file://{}", file.display())))?;
    Ok(())
}
