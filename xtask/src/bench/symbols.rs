//! Time and memory that finding names takes: wcprof's `report` on a recorded trace, and other
//! symbolizers on the same addresses, one after the other in one run.

mod peers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::measure::{Limit, Outcome, median};
use super::table::markdown;
use crate::process::{build_release, capture, cargo, execute, is_installed, target_folder};

/// How many times as large the debug file of `--large` is.
const ENLARGED: &str = "10";

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Trace without names, as `wcprof attach --raw` writes it
    trace: PathBuf,
    /// Also time `perf script` on this recording of the same process
    #[arg(long, value_name = "FILE")]
    perf_data: Option<PathBuf>,
    /// Also time one dump of all stacks of this process by `eu-stack` and gdb, which stop it
    #[arg(long)]
    pid: Option<u32>,
    /// Also time a program that takes a module's path and reads its addresses, a line each
    #[arg(long, value_name = "PROGRAM")]
    other: Vec<PathBuf>,
    /// Also enlarge this module's debug file ten times (a few GB in the folder of build results,
    /// removed afterwards)
    #[arg(long, value_name = "MODULE")]
    large: Option<PathBuf>,
    /// Runs of wcprof of which the median is shown; the others run once, after the page cache was
    /// filled
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Most seconds for one run of another program
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    limit: u32,
    /// Without other symbolizers
    #[arg(long)]
    no_peers: bool,
}

/// Measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        Path::new("/usr/bin/time").exists() && is_installed("timeout"),
        "GNU time is not installed (Debian: package time)"
    );
    let wcprof = build_release()?;
    let folder = target_folder()?.join("bench-symbols");
    fs::create_dir_all(&folder)?;
    let mut rows = Vec::new();
    let report = |flags: &[&str]| {
        let mut command = Command::new(&wcprof);
        command.arg("report").arg(&options.trace).args(flags);
        command.args(["--format", "json", "-o", "/dev/null"]);
        // The cache of this measurement, which is not the user's.
        command.env("XDG_CACHE_HOME", &folder);
        command
    };
    let limit = Limit(options.limit);
    for (what, flags) in [
        ("wcprof, nothing cached", &["--no-cache"][..]),
        ("wcprof, its own cache", &[]),
        ("wcprof, `--no-inline`", &["--no-inline"]),
        (
            "wcprof, `--no-cache --max-memory 64`",
            &["--no-cache", "--max-memory", "64"],
        ),
    ] {
        limit.measure(&mut report(flags), None)?; // page cache, and wcprof's own
        let outcome = median(options.runs, || limit.measure(&mut report(flags), None))?;
        rows.push(row(what, outcome));
    }
    if let Some(module) = &options.large {
        let dir = folder.join("large");
        let size = enlarge(module, &dir)?;
        let mut command = report(&["--no-cache"]);
        command.arg("--debug-dir").arg(&dir);
        limit.measure(&mut command, None)?;
        let outcome = limit.measure(&mut command, None)?;
        let what = format!("wcprof, nothing cached, debug file of {size} MB (10 times as large)");
        rows.push(row(&what, outcome));
        fs::remove_dir_all(&dir)?;
    }
    if !options.no_peers {
        peers::measure(options, &folder, limit, &mut rows)?;
    }
    print!(
        "{}",
        markdown(&["what", "wall s", "CPU s", "peak MB"], &rows)
    );
    Ok(())
}

fn row(what: &str, outcome: Outcome) -> Vec<String> {
    let mut cells = vec![what.to_owned()];
    cells.extend(outcome.cells());
    cells
}

/// Writes the module's debug file, with ten times its debug information, into the debug folder
/// `dir`. Returns its size in MB.
fn enlarge(module: &Path, dir: &Path) -> Result<u64> {
    let notes = capture(Command::new("readelf").arg("-n").arg(module))?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))
        .context("the module has no build-id")?;
    ensure!(id.is_ascii() && id.len() > 2, "malformed build-id `{id}`");
    let (head, tail) = id.split_at(2);
    let place = format!(".build-id/{head}/{tail}.debug");
    let to = dir.join(&place);
    fs::create_dir_all(to.parent().context("no parent folder")?)?;
    let mut command = cargo()?;
    command.args(["run", "--release", "--locked", "--quiet"]);
    command.args(["--package", "wcprof-symbols", "--example", "enlarge", "--"]);
    command.arg(Path::new("/usr/lib/debug").join(&place));
    execute(command.arg(&to).arg(ENLARGED))?;
    Ok(fs::metadata(&to)?.len() / 1_000_000)
}
