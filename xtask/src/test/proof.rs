//! Five runs in a row, on a calm machine and on one that is not: the checks must not fail for noise.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Result, ensure};

use super::parts::{PARTS, run_parts};
use super::summary::Summary;
use crate::process::{Background, command, compile_c, result_folder};

/// What runs beside the tests: its name, and shell commands that end when their standard input does.
type Load = (&'static str, &'static [&'static str]);
const CALM: Load = ("calm", &[]);
const LOOPS: Load = ("two busy loops", &[LOOP, LOOP]);
const LOOP: &str = "(while :; do :; done) & cat; kill $!";
const PAUSES: Load = ("CPUs stop for 0.2 to 1.4 s", &["exec ./pauses"]);
const RUNS: [Load; 5] = [CALM, CALM, LOOPS, LOOPS, PAUSES];
/// A test that is skipped this many times in a row checks nothing.
const MAX_SKIPS_IN_A_ROW: usize = 3;

/// Runs the checks five times.
///
/// # Errors
/// When a run fails, or a test is skipped in three runs in a row since the machine stood still.
pub fn run() -> Result<()> {
    let folder = result_folder("proof")?;
    compile_c("lab/pauses.c", "-pthread", &folder.join("pauses"))?;
    let mut runs = Vec::new();
    for (name, commands) in RUNS {
        println!("\n######## {name} ########");
        let start = |line: &&str| {
            let mut shell = command("sh -c");
            shell.arg(line).current_dir(&folder);
            Background::start(shell.stdin(Stdio::piped()).stdout(Stdio::null()))
        };
        let load = commands.iter().map(start).collect::<Result<Vec<_>>>()?;
        let summary = run_parts(PARTS);
        for mut program in load {
            // Also closes its standard input. What it has set is restored then.
            program.child.wait()?;
        }
        summary.print();
        runs.push(summary);
    }
    println!("\n==== proof ====");
    for ((name, _), summary) in RUNS.iter().zip(&runs) {
        let skips = summary.stood_still();
        let result = summary.require_success();
        let result = result.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        println!(
            "{name:<28} {:>6.0} s, {} skipped since the machine stood still {skips:?}: {result}",
            summary.seconds(),
            skips.len()
        );
    }
    let always = always_skipped(&runs);
    ensure!(
        always.is_empty(),
        "skipped {MAX_SKIPS_IN_A_ROW} times in a row: {always:?}"
    );
    runs.iter().try_for_each(Summary::require_success)
}

/// Tests that were skipped in three runs in a row since the machine stood still.
fn always_skipped(runs: &[Summary]) -> BTreeSet<&str> {
    let skipped: Vec<BTreeSet<&str>> = runs
        .iter()
        .map(|run| run.stood_still().into_iter().collect())
        .collect();
    let in_a_row = skipped.windows(MAX_SKIPS_IN_A_ROW).map(|runs| {
        let common = runs.iter().cloned().reduce(|a, b| &a & &b);
        common.unwrap_or_default()
    });
    in_a_row.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only a test that is skipped in three runs in a row is named.
    #[test]
    fn skipped_in_a_row() {
        let runs: Vec<Summary> = [&["a", "b"][..], &["a"], &["a", "b"], &["b"], &[]]
            .iter()
            .map(|names| {
                let mut summary = Summary::default();
                for name in *names {
                    let line = format!("SKIPPED {name}: machine stood still: CPUs 20 %");
                    summary.pass_on(line.as_bytes(), std::io::sink());
                }
                summary
            })
            .collect();
        assert_eq!(always_skipped(&runs), BTreeSet::from(["a"]));
    }
}
