//! Time and memory that reports of large traces take. The traces are generated
//! (`crates/wcprof-trace/examples/generate.rs`) into the folder of build results and removed.

use anyhow::Result;
use fs_err as fs;

use super::measure::{median_run, require_gnu_time};
use crate::markdown::table;
use crate::process::{build_release, capture, cargo_example, quoted, result_folder};

/// A recording of one OSD with 70 threads, of 10 s.
const OSD: &str = "fixtures/traces/ceph-osd-secure-randread.wct";

/// Generates, measures, and prints a table.
///
/// # Errors
/// When a build or a program fails, or GNU time is not installed.
pub fn run() -> Result<()> {
    require_gnu_time()?;
    let wcprof = build_release()?;
    let file = result_folder("bench-report")?.join("generated.wct");
    let path = quoted(&file);
    let mut rows = Vec::new();
    for (trace, arguments) in [
        ("60 OSDs, 60 s", format!("copies 60 60 {OSD}")),
        ("nothing merged", "distinct 10000000 1000".to_owned()),
        ("nothing merged", "distinct 10000000 5000".to_owned()),
        ("60 OSDs, 30 s", format!("copies 60 30 {OSD}")),
    ] {
        let made = capture(cargo_example(
            "wcprof-trace",
            &format!("generate {arguments} {path}"),
        ))?;
        for flags in [
            "--by pool",
            "--by pool --invert",
            "--functions --by all",
            "--json --by pool",
            "--format html",
        ] {
            let line = format!("{wcprof} report {path} {flags} -o /dev/null");
            let outcome = median_run(120, &line)?;
            rows.push(outcome.row(&[&format!("{trace}: {}", made.trim()), flags]));
        }
        fs::remove_file(&file)?;
    }
    let head = ["trace", "report", "wall s", "CPU s", "peak MB"];
    print!("{}", table(&head, &rows));
    Ok(())
}
