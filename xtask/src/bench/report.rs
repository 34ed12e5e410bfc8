//! Time and memory that reports of large traces take. The traces are generated
//! (`crates/wcprof-trace/examples/generate.rs`) into the folder of build results and removed.

use anyhow::Result;
use fs_err as fs;

use super::measure::{median_run, require_gnu_time};
use crate::markdown::table;
use crate::process::{build_release, capture, cargo_example, quoted, result_folder};

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
    require_gnu_time()?;
    let wcprof = build_release()?;
    let file = result_folder("bench-report")?.join("generated.wct");
    let path = quoted(&file);
    let (osds, seconds, samples) = (options.osds, options.seconds, options.samples);
    let mut rows = Vec::new();
    for (trace, arguments) in [
        (
            format!("{osds} OSDs, {seconds} s"),
            format!("copies {osds} {seconds} {OSD}"),
        ),
        (
            "nothing merged, 1000 stacks".to_owned(),
            format!("distinct {samples} 1000"),
        ),
        (
            "nothing merged, 5000 stacks".to_owned(),
            format!("distinct {samples} 5000"),
        ),
        ("half as long".to_owned(), format!("copies {osds} 30 {OSD}")),
    ] {
        let made = capture(cargo_example(
            "wcprof-trace",
            &format!("generate {arguments} {path}"),
        ))?;
        for flags in [
            "--by pool",
            "--by pool --invert",
            "--format functions --by all",
            "--format json --by pool",
            "--format html",
        ] {
            let line = format!("{wcprof} report {path} {flags} -o /dev/null");
            let outcome = median_run(options.runs, 120, &line)?;
            rows.push(outcome.row(&[&format!("{trace}: {}", made.trim()), flags]));
        }
        fs::remove_file(&file)?;
    }
    let head = ["trace", "report", "wall s", "CPU s", "peak MB"];
    print!("{}", table(&head, &rows));
    Ok(())
}
