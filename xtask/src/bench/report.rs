//! Time and memory that reports of large traces take. The traces are generated
//! (`crates/wcprof-trace/examples/generate.rs`) into the folder of build results and removed.

use anyhow::Result;
use fs_err as fs;

use super::measure::{median_run, require_gnu_time};
use crate::markdown::table;
use crate::process::{build_release, capture, cargo_example, quoted, result_folder};

/// A recording of one OSD with 70 threads, of 10 s.
const OSD: &str = "fixtures/traces/ceph-osd-secure-randread.wct";

const REPORTS: [&str; 5] = [
    "--by pool",
    "--by pool --invert",
    "--functions --by all",
    "--json --by pool",
    "--format html",
];

/// Generates, measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run() -> Result<()> {
    require_gnu_time()?;
    let wcprof = build_release()?;
    let file = result_folder("bench-report")?.join("generated.wct");
    let path = quoted(&file);
    let mut rows = reports(&wcprof, "one OSD, 10 s", OSD)?;
    for (trace, arguments) in [
        ("2 OSDs, 60 s", format!("copies 2 60 {OSD}")),
        ("60 OSDs, 60 s", format!("copies 60 60 {OSD}")),
        ("nothing merged", "distinct 10000000 1000".to_owned()),
        ("nothing merged", "distinct 10000000 5000".to_owned()),
        ("60 OSDs, 30 s", format!("copies 60 30 {OSD}")),
    ] {
        let made = capture(cargo_example(
            "wcprof-trace",
            &format!("generate {arguments} {path}"),
        ))?;
        rows.extend(reports(
            &wcprof,
            &format!("{trace}: {}", made.trim()),
            &path,
        )?);
        fs::remove_file(&file)?;
    }
    let head = ["trace", "report", "wall s", "CPU s", "peak MB"];
    print!("{}", table(&head, &rows));
    Ok(())
}

/// A row for each report of the trace at `path`, whole processes.
fn reports(wcprof: &str, trace: &str, path: &str) -> Result<Vec<Vec<String>>> {
    let row = |flags| {
        let line = format!("{wcprof} report {path} {flags} -o /dev/null");
        Ok(median_run(120, &line)?.row(&[trace, flags]))
    };
    REPORTS.into_iter().map(row).collect()
}
