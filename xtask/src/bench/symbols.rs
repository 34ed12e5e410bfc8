//! Time and memory that finding names takes: wcprof's `report` on a recorded trace, and other
//! symbolizers on the same addresses, one after the other in one run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::measure::{measure, median_run, require_gnu_time};
use super::symbolizers;
use crate::markdown::table;
use crate::process::{build_release, capture, cargo_example, command, execute, result_folder};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    others: symbolizers::SymbolizerOptions,
    /// Also enlarge this module's debug file ten times (a few GB in the folder of build results,
    /// removed afterwards)
    #[arg(long, value_name = "MODULE")]
    large: Option<PathBuf>,
    /// Runs of wcprof of which the median is shown; the others run once, after the page cache was
    /// filled
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Without other symbolizers
    #[arg(long)]
    no_peers: bool,
}

/// Measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run(options: &Options) -> Result<()> {
    require_gnu_time()?;
    let wcprof = build_release()?;
    let folder = result_folder("bench-symbols")?;
    let (trace, limit) = (&options.others.trace, options.others.limit);
    let report = |flags: &str| {
        let mut report = Command::new(&wcprof);
        report.arg("report").arg(trace);
        report.args(["--format", "json", "-o", "/dev/null"]);
        report.args(flags.split_whitespace());
        // The cache of this measurement, which is not the user's.
        report.env("XDG_CACHE_HOME", &folder);
        report
    };
    let mut rows = Vec::new();
    for (name, flags) in [
        ("nothing cached", "--no-cache"),
        ("its own cache", ""),
        ("`--no-inline`", "--no-inline"),
        ("`--no-cache --max-memory 64`", "--no-cache --max-memory 64"),
    ] {
        measure(limit, &mut report(flags), None)?; // page cache, and wcprof's own
        let outcome = median_run(options.runs, || measure(limit, &mut report(flags), None))?;
        rows.push(outcome.row(&[&format!("wcprof, {name}")]));
    }
    if let Some(module) = &options.large {
        let debug_folder = folder.join("large");
        let megabytes = enlarge(module, &debug_folder)?;
        let mut report = report("--no-cache --debug-dir");
        report.arg(&debug_folder);
        measure(limit, &mut report, None)?;
        let outcome = measure(limit, &mut report, None)?;
        rows.push(outcome.row(&[&format!(
            "wcprof, nothing cached, debug file of {megabytes} MB (10 times as large)"
        )]));
        fs::remove_dir_all(&debug_folder)?;
    }
    if !options.no_peers {
        rows.extend(symbolizers::rows(&options.others, &folder)?);
    }
    let head = ["what", "wall s", "CPU s", "peak MB"];
    print!("{}", table(&head, &rows));
    Ok(())
}

/// Writes the module's debug file, with ten times its debug information, into the debug folder
/// `folder`. Returns its size in MB.
fn enlarge(module: &Path, folder: &Path) -> Result<u64> {
    let notes = capture(command("readelf -n").arg(module))?;
    let mut lines = notes.lines();
    let id = lines
        .find_map(|line| line.trim().strip_prefix("Build ID: "))
        .context("the module has no build-id")?;
    ensure!(id.is_ascii() && id.len() > 2, "malformed build-id `{id}`");
    let place = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    let to = folder.join(&place);
    fs::create_dir_all(to.parent().context("no parent folder")?)?;
    let mut enlarge = cargo_example("wcprof-symbols", "enlarge");
    enlarge.arg(Path::new("/usr/lib/debug").join(&place));
    execute(enlarge.arg(&to).arg("10"))?;
    Ok(fs::metadata(&to)?.len() / 1_000_000)
}
