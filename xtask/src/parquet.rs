//! `cargo xtask parquet`: the tests of the export to Parquet, whose crates other builds do without; then the queries of
//! `docs/parquet.md` in DuckDB over the files of 20 OSDs. The first is compared with `wcprof report --json`.
//!
//! DuckDB comes from PyPI into a folder below cargo's. Where that is not possible, it is printed as skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{
    capture, capture_json, cargo, cargo_example, command, execute, is_installed, list, number,
    quoted, result_folder, root, target_folder, text,
};

/// The package and version that was tried.
const DUCKDB: &str = "duckdb==2.0.0";
/// What is exported, in turn.
const TRACES: [&str; 4] = [
    "story-1-cache-osd.wct",
    "story-2-no-cache-osd.wct",
    "story-3-tcmalloc-osd.wct",
    "story-4-secure-osd.wct",
];
const N_OSDS: usize = 20;
const QUERIES: &str = "docs/parquet.md";

/// Runs the command.
///
/// # Errors
/// When a test fails, DuckDB refuses a file or a query of the document, or its sums are not those of wcprof.
pub fn run() -> Result<()> {
    let packages = "--package wcprof-parquet --package wcprof --features parquet --locked";
    let clippy = format!("clippy {packages} --lib --test it -- -D warnings");
    execute(cargo(&clippy))?;
    execute(cargo(
        "test --package wcprof-parquet --features parquet --locked",
    ))?;
    execute(cargo(
        "build --package wcprof --bin wcprof --features parquet --locked",
    ))?;
    let python = match duckdb() {
        Ok(python) => python,
        Err(error) => {
            println!("SKIPPED 20 files in DuckDB: {error:#}");
            return Ok(());
        }
    };
    let folder = result_folder("parquet")?;
    let own = export(&folder)?;
    let ask = |query: &str| {
        let mut ask = command(&python);
        ask.current_dir(&folder).args(["-c", ASK, query]);
        capture_json(ask).with_context(|| format!("{QUERIES}: {query}"))
    };
    let document = fs::read_to_string(root().join(QUERIES))?;
    let queries = queries(&document);
    ensure!(queries.len() > 2, "{QUERIES} has no queries");
    for (at, query) in queries.iter().enumerate() {
        let answer = ask(query)?;
        let n = list(&answer).count();
        ensure!(n > 0, "{QUERIES}: nothing comes of {query}");
        println!("query {}: {n} lines", at + 1);
        if at == 0 {
            compare(&answer, &own)?;
        }
    }
    let size = |extension: &str| -> Result<u64> {
        let files = (0..N_OSDS).map(|osd| file(&folder, osd, extension).metadata());
        let sizes = files.map(|file| Ok(file?.len()));
        sizes.sum()
    };
    println!(
        "{N_OSDS} traces, {:.2} MB: {:.2} MB of Parquet",
        size("wct")? as f64 / 1e6,
        size("parquet")? as f64 / 1e6
    );
    Ok(())
}

/// Prints the answer to a query as lists in JSON.
const ASK: &str = "\
import duckdb, json, sys
print(json.dumps(duckdb.sql(sys.argv[1]).fetchall(), default=str))";

/// A Python that has DuckDB, [`quoted`].
fn duckdb() -> Result<String> {
    ensure!(is_installed("python3"), "python3 is not installed");
    let folder = target_folder().join("duckdb");
    let python = quoted(folder.join("bin/python"));
    let has_it = || capture(command(&format!("{python} -c 'import duckdb, pytz'"))).is_ok();
    if !has_it() {
        let make = format!("python3 -m venv {}", quoted(&folder));
        capture(command(&make)).context("install python3-venv")?;
        let pip = format!("{python} -m pip install --quiet --disable-pip-version-check");
        capture(command(&format!("{pip} {DUCKDB} pytz")))?;
        ensure!(has_it(), "{DUCKDB} does not start");
    }
    Ok(python)
}

fn file(folder: &Path, osd: usize, extension: &str) -> PathBuf {
    folder.join(format!("osd.{osd}.{extension}"))
}

/// On-CPU and lock time in ns, by daemon and pool.
type Times = BTreeMap<(String, String), [u64; 2]>;

/// Makes the traces and their exports. Returns what wcprof says of them itself.
fn export(folder: &Path) -> Result<Times> {
    let wcprof = quoted(target_folder().join("debug/wcprof"));
    let mut times = Times::new();
    for osd in 0..N_OSDS {
        let recorded = root()
            .join("fixtures/traces")
            .join(TRACES[osd % TRACES.len()]);
        let trace = file(folder, osd, "wct");
        let words = format!("generate osd {osd} {} {}", quoted(recorded), quoted(&trace));
        execute(cargo_example("wcprof-trace", &words))?;
        let (from, to) = (quoted(&trace), quoted(file(folder, osd, "parquet")));
        let words = format!("{wcprof} report {from} --format parquet --force -o {to}");
        capture(command(&words))?;
        let report = capture_json(command(&format!("{wcprof} report {from} --json --by pool")))?;
        for group in list(&report["groups"]) {
            let of = |state: &str| group["states_ns"][state].as_u64().unwrap_or(0);
            let key = (format!("osd.{osd}"), text(&group["name"]).to_owned());
            times.insert(key, [of("on-cpu"), of("lock")]);
        }
    }
    Ok(times)
}

/// The queries of a document, in order.
fn queries(document: &str) -> Vec<&str> {
    let blocks = document.split("```sql\n").skip(1);
    blocks
        .filter_map(|block| block.split("```").next())
        .collect()
}

/// Compares host, daemon, pool, seconds on a CPU and seconds of lock waits with what wcprof says.
fn compare(answer: &Value, own: &Times) -> Result<()> {
    let mut found = Times::new();
    for line in list(answer) {
        let ns = |at: usize| (number(&line[at]) * 1e9).round() as u64;
        let (daemon, pool) = (text(&line[1]).to_owned(), text(&line[2]).to_owned());
        let osd: usize = daemon.trim_start_matches("osd.").parse()?;
        ensure!(
            line[0] == format!("node{}", osd / 4),
            "{line}: another host"
        );
        found.insert((daemon, pool), [ns(3), ns(4)]);
    }
    let mut own = own.clone();
    for times in [&mut own, &mut found] {
        times.retain(|_, [on_cpu, lock]| *on_cpu > 0 || *lock > 0);
    }
    let daemons: BTreeSet<_> = own.keys().map(|(daemon, _)| daemon).collect();
    ensure!(
        daemons.len() == N_OSDS,
        "{} OSDs were exported",
        daemons.len()
    );
    for (key, times) in &own {
        if found.get(key) != Some(times) {
            bail!(
                "{key:?}: DuckDB says {:?}, wcprof {times:?}",
                found.get(key)
            );
        }
    }
    ensure!(
        found.len() == own.len(),
        "DuckDB has {} pools, wcprof {}",
        found.len(),
        own.len()
    );
    println!(
        "CPU and lock time of {} pools of {N_OSDS} OSDs are those of `wcprof report`, to the nanosecond",
        own.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a time that differs by a nanosecond, and a pool that is missing or too many, are found.
    #[test]
    fn compared() {
        let lines: Vec<String> = (0..N_OSDS)
            .map(|osd| {
                format!(
                    r#"["node{}", "osd.{osd}", "tp_osd_tp", 1.000000001, 0.5]"#,
                    osd / 4
                )
            })
            .collect();
        let answer =
            |lines: &[String]| serde_json::from_str(&format!("[{}]", lines.join(","))).unwrap();
        let own: Times = (0..N_OSDS)
            .map(|osd| {
                (
                    (format!("osd.{osd}"), "tp_osd_tp".to_owned()),
                    [1_000_000_001, 500_000_000],
                )
            })
            .collect();
        assert!(compare(&answer(&lines), &own).is_ok());
        assert!(compare(&answer(&lines[1..]), &own).is_err());
        let more = [lines.clone(), vec![lines[0].replace("tp_", "x_")]].concat();
        assert!(compare(&answer(&more), &own).is_err());
        let mut other = own.clone();
        other.values_mut().next().unwrap()[1] += 1;
        assert!(compare(&answer(&lines), &other).is_err());
    }

    /// Check that queries are found.
    #[test]
    fn of_documents() {
        assert_eq!(
            queries("a\n```sql\nselect 1;\n```\n```\nx\n```\n```sql\nq\n```\n"),
            ["select 1;\n", "q\n"]
        );
    }
}
