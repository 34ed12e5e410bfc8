//! Time and memory that reports of large traces take. The traces are generated
//! (`crates/wcprof-trace/examples/generate.rs`) into the folder of build results and removed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::measure::{Limit, median};
use super::table::markdown;
use crate::process::{build_release, capture, cargo, root, target_folder};

/// A recording of one OSD with 70 threads, of 10 s.
const OSD: &str = "fixtures/traces/ceph-osd-secure-randread.wct";

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// OSDs that are recorded together
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    osds: u32,
    /// Seconds for which they are recorded
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=3600))]
    seconds: u32,
    /// Thread-samples of the trace of which nothing can be merged
    #[arg(long, default_value_t = 10_000_000)]
    samples: u32,
    /// Runs of which the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
}

/// Generates, measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        Path::new("/usr/bin/time").exists(),
        "GNU time is not installed (Debian: package time)"
    );
    let wcprof = build_release()?;
    let folder = target_folder()?.join("bench-report");
    fs::create_dir_all(&folder)?;
    let osd = root()?.join(OSD);
    let osd = osd.to_str().context("the repository's path is not text")?;
    let (osds, seconds) = (options.osds.to_string(), options.seconds.to_string());
    let samples = options.samples.to_string();
    let traces = [
        (
            format!("{osds} OSDs, {seconds} s"),
            vec!["copies", &osds, &seconds, osd],
        ),
        (
            "nothing merged, 1000 stacks".to_owned(),
            vec!["distinct", &samples, "1000"],
        ),
        (
            "nothing merged, 5000 stacks".to_owned(),
            vec!["distinct", &samples, "5000"],
        ),
        ("half as long".to_owned(), vec!["copies", &osds, "30", osd]),
    ];
    let mut rows = Vec::new();
    for (what, args) in &traces {
        let file = folder.join("generated.wct");
        let mut generate = cargo()?;
        generate.args(["run", "--quiet", "--release", "--locked"]);
        generate.args(["--package", "wcprof-trace", "--example", "generate", "--"]);
        let made = capture(generate.args(args).arg(&file))?;
        for flags in [
            &["--by", "pool"][..],
            &["--by", "pool", "--invert"],
            &["--format", "functions", "--by", "all"],
            &["--format", "json", "--by", "pool"],
            &["--format", "html"],
        ] {
            let outcome = median(options.runs, || {
                let mut report = Command::new(&wcprof);
                report.arg("report").arg(&file).args(flags);
                report.args(["-o", "/dev/null"]);
                Limit(120).measure(&mut report, None)
            })?;
            let mut row = vec![format!("{what}: {}", made.trim()), flags.join(" ")];
            row.extend(outcome.cells());
            rows.push(row);
        }
        fs::remove_file(&file)?;
    }
    print!(
        "{}",
        markdown(&["trace", "report", "wall s", "CPU s", "peak MB"], &rows)
    );
    Ok(())
}
