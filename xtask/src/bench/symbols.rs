//! Time and memory that finding names takes: wcprof's `report` on a recorded trace, and other
//! symbolizers on the same addresses, one after the other in one run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::measure::{measure, median_run, require_gnu_time};
use super::symbolizers::{self, LIMIT};
use crate::markdown::table;
use crate::process::{
    build_release, capture, cargo_example, command, execute, quoted, result_folder,
};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    others: symbolizers::SymbolizerOptions,
    /// Also enlarge this module's debug file ten times (a few GB in the folder of build results,
    /// removed afterwards)
    #[arg(long, value_name = "MODULE")]
    large: Option<PathBuf>,
}

/// Measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run(options: &Options) -> Result<()> {
    require_gnu_time()?;
    let wcprof = build_release()?;
    let folder = result_folder("bench-symbols")?;
    let trace = quoted(&options.others.trace);
    // The cache of this measurement, which is not the user's.
    let cache = quoted(&folder);
    let report = |flags: &str| {
        format!("env XDG_CACHE_HOME={cache} {wcprof} report {trace} --json -o /dev/null {flags}")
    };
    let mut rows = Vec::new();
    for (name, flags) in [
        ("nothing cached", "--no-cache"),
        ("its own cache", ""),
        ("`--no-inline`", "--no-inline"),
        ("`--no-cache --max-memory 64`", "--no-cache --max-memory 64"),
    ] {
        measure(LIMIT, &report(flags))?; // page cache, and wcprof's own
        let outcome = median_run(LIMIT, &report(flags))?;
        rows.push(outcome.row(&[&format!("wcprof, {name}")]));
    }
    if let Some(module) = &options.large {
        let debug_folder = folder.join("large");
        let megabytes = enlarge(module, &debug_folder)?;
        let report = report(&format!("--no-cache --debug-dir {}", quoted(&debug_folder)));
        measure(LIMIT, &report)?;
        rows.push(measure(LIMIT, &report)?.row(&[&format!(
            "wcprof, nothing cached, debug file of {megabytes} MB (10 times as large)"
        )]));
        fs::remove_dir_all(&debug_folder)?;
    }
    rows.extend(symbolizers::rows(&options.others, &folder)?);
    let head = ["what", "wall s", "CPU s", "peak MB"];
    print!("{}", table(&head, &rows));
    Ok(())
}

/// Writes the module's debug file, with ten times its debug information, into the debug folder
/// `folder`. Returns its size in MB.
fn enlarge(module: &Path, folder: &Path) -> Result<u64> {
    let notes = capture(command("readelf -n").arg(module))?;
    let (_, id) = notes
        .split_once("Build ID: ")
        .context("the module has no build-id")?;
    let id = id.lines().next().unwrap_or_default();
    ensure!(id.is_ascii() && id.len() > 2, "malformed build-id `{id}`");
    let place = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    let to = folder.join(&place);
    fs::create_dir_all(to.parent().context("no parent folder")?)?;
    let line = format!("enlarge /usr/lib/debug/{place} {} 10", quoted(&to));
    execute(cargo_example("wcprof-symbols", &line))?;
    Ok(fs::metadata(&to)?.len() / 1_000_000)
}
