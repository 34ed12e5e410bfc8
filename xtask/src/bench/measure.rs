//! A program to the time and memory that it takes, by GNU time.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};

use crate::process::command;

/// What a run took.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// It was not done within the limit; the figures are what it took until then.
    is_cut: bool,
    wall_seconds: f64,
    pub cpu_seconds: f64,
    peak_kib: f64,
}

impl Outcome {
    /// A row of a table: these names, then wall-clock seconds, CPU seconds, peak megabytes.
    pub fn row(self, names: &[&str]) -> Vec<String> {
        let mark = if self.is_cut { "> " } else { "" };
        let figures = [
            format!("{mark}{:.2}", self.wall_seconds),
            format!("{mark}{:.2}", self.cpu_seconds),
            format!("{mark}{:.0}", self.peak_kib / 1024.0),
        ];
        let names = names.iter().map(|&name| name.to_owned());
        names.chain(figures).collect()
    }
}

/// # Errors
/// When GNU time is not installed.
pub fn require_gnu_time() -> Result<()> {
    ensure!(
        Path::new("/usr/bin/time").exists(),
        "GNU time is not installed (Debian: package time)"
    );
    Ok(())
}

/// Runs a shell's line, which begins with a program, for at most `limit` seconds.
///
/// # Errors
/// When it cannot be run or fails.
pub fn measure(limit: u32, line: &str) -> Result<Outcome> {
    let timed = format!(
        "/usr/bin/time -f 'wcprof-bench %e %U %S %M' timeout --kill-after=5 {limit} {line}"
    );
    // What is measured is this machine, not the network.
    let mut shell = command("env -u DEBUGINFOD_URLS sh -c");
    shell.arg(timed).stdin(Stdio::null()).stdout(Stdio::null());
    let output = shell.output().context("failed to run a shell")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().rev();
    let fields = lines.find_map(|line| line.strip_prefix("wcprof-bench "));
    let fields = fields.unwrap_or_default().split(' ');
    let fields: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    // timeout(1): 124 when the limit was met, 137 when the program had to be killed.
    let is_cut = matches!(output.status.code(), Some(124 | 137));
    let [wall_seconds, user, system, peak_kib] = fields[..] else {
        bail!("`{line}` was not measured: {text}");
    };
    let is_measured = output.status.success() || is_cut;
    ensure!(is_measured, "`{line}` failed: {text}");
    Ok(Outcome {
        is_cut,
        wall_seconds,
        cpu_seconds: user + system,
        peak_kib,
    })
}

/// Of five runs the one whose wall-clock time is the median.
pub fn median_run(limit: u32, line: &str) -> Result<Outcome> {
    let outcomes = (0..5).map(|_| measure(limit, line));
    let mut outcomes = outcomes.collect::<Result<Vec<_>>>()?;
    outcomes.sort_by(|a, b| a.wall_seconds.total_cmp(&b.wall_seconds));
    Ok(outcomes[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program that ends is measured, one that does not is cut and marked, and one that
    /// fails is an error.
    #[test]
    fn ends() {
        if require_gnu_time().is_err() {
            println!("SKIPPED ends: needs GNU time");
            return;
        }
        let run = |script: &str| measure(1, &format!("sh -c '{script}'"));
        assert!(!run("exit 0").unwrap().is_cut);
        let cut = run("while :; do :; done").unwrap();
        assert!(cut.is_cut);
        assert!(cut.row(&["x"])[1].starts_with("> "));
        assert!(run("exit 3").is_err());
    }
}
