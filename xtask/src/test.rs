//! `cargo xtask test`: every check, one after the other, with one summary at the end.
//!
//! A failed check does not stop the others. Tests that could not run here print a line that starts
//! with `SKIPPED`; these lines and cargo's own `test result` lines are repeated in the summary.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::process::{cargo, execute, is_installed};
use crate::setup::{Group, add_rust_components, install};
use crate::tidy;

/// Run every check: format, lints, tests, documentation, invariants, generated files.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Do not install missing packages
    #[arg(long)]
    no_setup: bool,
}

/// What the checks said.
#[derive(Debug, Default)]
struct Summary {
    failed: Vec<String>,
    skipped: Vec<String>,
    results: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// When any check failed.
pub fn run(args: &Args) -> Result<()> {
    let mut summary = Summary::default();
    if !args.no_setup {
        summary.check("packages", |_| {
            install(&[Group::Build, Group::Test])?;
            add_rust_components()
        });
    }
    summary.check("format", |_| {
        execute(cargo()?.args(["fmt", "--all", "--check"]))
    });
    summary.check("invariants", |_| tidy::run(&tidy::Args {}));
    summary.check("generated files", |summary| {
        if is_installed("clang-14") && is_installed("llvm-strip-14") {
            let xtask = std::env::current_exe().context("failed to find this program")?;
            return execute(Command::new(xtask).args(["bpf", "--check"]));
        }
        summary.skip("SKIPPED bpf --check: needs clang-14 and llvm-14, which are not installed");
        Ok(())
    });
    summary.check("lints", |_| {
        execute(
            cargo()?
                .args(["clippy", "--workspace", "--all-targets", "--locked"])
                .args(["--", "-D", "warnings"]),
        )
    });
    summary.check("documentation", |_| {
        execute(
            cargo()?
                .args(["doc", "--workspace", "--no-deps", "--locked"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    });
    summary.check("tests", |summary| {
        let mut command = cargo()?;
        command.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
        summary.cargo_test(&mut command)
    });
    summary.print();
    if summary.failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", summary.failed.join(", "))
}

impl Summary {
    fn check(&mut self, name: &str, what: impl FnOnce(&mut Self) -> Result<()>) {
        println!("\n==== {name} ====");
        let start = Instant::now();
        let result = what(self);
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(()) => println!("---- {name}: ok, {seconds} s"),
            Err(error) => {
                println!("---- {name}: FAILED, {seconds} s: {error:#}");
                self.failed.push(name.to_owned());
            }
        }
    }

    fn skip(&mut self, line: &str) {
        println!("{line}");
        self.skipped.push(line.to_owned());
    }

    /// Passes the output of cargo on while it comes, and keeps the lines that matter.
    fn cargo_test(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("failed to run cargo")?;
        let stdout = child.stdout.take().context("cargo has no output")?;
        let stderr = child.stderr.take().context("cargo has no error output")?;
        let from_stderr = std::thread::spawn(move || pass_on(stderr, std::io::stderr()));
        let mut kept = pass_on(stdout, std::io::stdout());
        let more = from_stderr
            .join()
            .map_err(|_| anyhow!("failed to read the output of cargo"))?;
        kept.extend(more);
        let status = child.wait().context("failed to wait for cargo")?;
        for line in kept {
            if line.starts_with("SKIPPED") {
                self.skipped.push(line);
            } else {
                self.results.push(line);
            }
        }
        if status.success() {
            return Ok(());
        }
        bail!("cargo test failed: {status}")
    }

    fn print(&self) {
        println!("\n==== summary ====");
        for name in &self.failed {
            println!("FAILED {name}");
        }
        println!("{} skipped", self.skipped.len());
        for line in &self.skipped {
            println!("{line}");
        }
        for line in &self.results {
            println!("{line}");
        }
    }
}

/// Copies lines until the end and returns those of the summary.
fn pass_on(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut kept = Vec::new();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // A closed terminal must not keep cargo from ending.
        let _ = to.write_all(&line);
        let text = String::from_utf8_lossy(&line);
        if let Some(line) = summary_line(&text) {
            kept.push(line.to_owned());
        }
        line.clear();
    }
    kept
}

/// A skip may follow the name of its test on the same line.
fn summary_line(line: &str) -> Option<&str> {
    let line = line.trim_end();
    if let Some(at) = line.find("SKIPPED ") {
        return Some(&line[at..]);
    }
    line.starts_with("test result: ").then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that skips and results are kept, also behind the name of a test, and nothing else.
    #[test]
    fn keeps_skips_and_results() {
        let mut copy = Vec::new();
        let output = "running 2 tests\ntest a ... SKIPPED a: needs root\ntest b ... ok\n\
            test result: ok. 2 passed\nSKIPPED c: needs BPF";
        assert_eq!(
            pass_on(output.as_bytes(), &mut copy),
            [
                "SKIPPED a: needs root",
                "test result: ok. 2 passed",
                "SKIPPED c: needs BPF"
            ]
        );
        assert_eq!(copy, output.as_bytes());
    }

    /// Check that a failed check is remembered and the next one still runs.
    #[test]
    fn failures_do_not_stop() {
        let mut summary = Summary::default();
        summary.check("first", |_| bail!("no"));
        let mut ran = false;
        summary.check("second", |_| {
            ran = true;
            Ok(())
        });
        assert!(ran);
        assert_eq!(summary.failed, ["first"]);
    }
}
