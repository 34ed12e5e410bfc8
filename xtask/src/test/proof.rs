//! Five runs in a row, on a calm machine and on one that is not: the checks must not fail for noise.

use anyhow::{Result, bail};

use super::beside::{Beside, Load};
use super::parts::run_parts;
use super::summary::Summary;

const RUNS: [Beside; 5] = [
    Beside::Calm,
    Beside::Calm,
    Beside::Loops,
    Beside::Loops,
    Beside::Pauses,
];
/// A test that is skipped this many times in a row checks nothing.
const MAX_SKIPS_IN_A_ROW: usize = 3;

/// Runs the checks five times.
///
/// # Errors
/// When a run fails, or a test is skipped in three runs in a row since the machine stood still.
pub fn run() -> Result<()> {
    let mut runs = Vec::new();
    for beside in RUNS {
        println!("\n######## {beside} ########");
        let load = Load::start(beside)?;
        let summary = run_parts(|part| !part.long);
        drop(load);
        summary.print();
        runs.push(summary);
    }
    println!("\n==== proof ====");
    for (beside, summary) in RUNS.iter().zip(&runs) {
        let skips = summary.stood_still();
        let result = summary
            .verdict()
            .map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        println!(
            "{beside:<28} {:>6.0} s, {} skipped since the machine stood still {skips:?}: {result}",
            summary.seconds(),
            skips.len()
        );
    }
    let always = always_skipped(&runs);
    if !always.is_empty() {
        bail!(
            "skipped {MAX_SKIPS_IN_A_ROW} times in a row: {}",
            always.join(", ")
        );
    }
    runs.iter().try_for_each(Summary::verdict)
}

/// Tests that were skipped in three runs in a row since the machine stood still.
fn always_skipped(runs: &[Summary]) -> Vec<&str> {
    let mut always: Vec<&str> = runs
        .windows(MAX_SKIPS_IN_A_ROW)
        .flat_map(|runs| {
            let (first, others) = runs
                .split_first()
                .map_or((None, runs), |(f, o)| (Some(f), o));
            let names = first.map(Summary::stood_still).unwrap_or_default();
            names
                .into_iter()
                .filter(|name| others.iter().all(|run| run.stood_still().contains(name)))
                .collect::<Vec<_>>()
        })
        .collect();
    always.sort_unstable();
    always.dedup();
    always
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
                    summary.skip(&format!("SKIPPED {name}: machine stood still: CPUs 20 %"));
                }
                summary
            })
            .collect();
        assert_eq!(always_skipped(&runs), ["a"]);
    }
}
