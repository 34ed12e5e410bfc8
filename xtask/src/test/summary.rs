//! What the checks printed: times, failures, skips.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// What a live test prints that could not check a share; see the testkit's `machine.rs`.
const STOOD_STILL: &str = "machine stood still";

/// What the checks printed.
#[derive(Debug, Default)]
pub struct Summary {
    times: Vec<(&'static str, Duration)>,
    failed: Vec<&'static str>,
    skipped: Vec<String>,
    results: Vec<String>,
}

impl Summary {
    /// Runs a check, and records how long it took and whether it failed.
    pub fn check(&mut self, name: &'static str, what: impl FnOnce(&mut Self) -> Result<()>) {
        println!("\n==== {name} ====");
        let start = Instant::now();
        let result = what(self);
        let time = start.elapsed();
        self.times.push((name, time));
        match result {
            Ok(()) => println!("---- {name}: ok, {} s", time.as_secs()),
            Err(error) => {
                println!("---- {name}: FAILED, {} s: {error:#}", time.as_secs());
                self.failed.push(name);
            }
        }
    }

    /// Runs a program, and passes its output on while it comes.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        self.run_to(command, io::stdout())
    }

    fn run_to(&mut self, command: &mut Command, to: impl Write) -> Result<()> {
        let (output, writer) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?);
        let mut child = command.stderr(writer).spawn()?;
        // Without a writer here the output ends with the program.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.pass_on(output, to);
        let status = child.wait()?;
        ensure!(status.success(), "`{command:?}` failed: {status}");
        Ok(())
    }

    /// Copies lines until the end, and keeps those of the summary.
    pub fn pass_on(&mut self, from: impl Read, mut to: impl Write) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            // A closed terminal must not keep the checks from ending.
            let _ = to.write_all(&line);
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            // A skip may follow the name of its test on the same line.
            if let Some(at) = text.find("SKIPPED ") {
                self.skipped.push(text[at..].to_owned());
            } else if text.starts_with("test result: ") {
                self.results.push(text.to_owned());
            }
            line.clear();
        }
    }

    /// Names of the tests that could not check a share because the machine stood still.
    pub fn stood_still(&self) -> Vec<&str> {
        let skipped = self.skipped.iter();
        skipped
            .filter(|line| line.contains(STOOD_STILL))
            .filter_map(|line| line.strip_prefix("SKIPPED ")?.split(": ").next())
            .collect()
    }

    /// Prints times, failures, skips and counts.
    pub fn print(&self) {
        println!("\n==== summary ====");
        for line in &self.results {
            println!("{line}");
        }
        println!(
            "{} skipped, {} of them since the machine stood still",
            self.skipped.len(),
            self.stood_still().len()
        );
        for line in &self.skipped {
            println!("{line}");
        }
        for (name, time) in &self.times {
            println!("{:>7.1} s  {name}", time.as_secs_f64());
        }
        println!("{:>7.1} s  in all", self.seconds());
        for name in &self.failed {
            println!("FAILED {name}");
        }
    }

    /// Time of all parts.
    pub fn seconds(&self) -> f64 {
        self.times.iter().map(|(_, time)| time.as_secs_f64()).sum()
    }

    /// # Errors
    /// When a check failed.
    pub fn require_success(&self) -> Result<()> {
        let failed = self.failed.join(", ");
        ensure!(failed.is_empty(), "failed: {failed}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// Check that skips and results are kept, also behind the name of a test, and nothing else.
    #[test]
    fn keeps_skips_and_results() {
        let (mut summary, mut copy) = (Summary::default(), Vec::new());
        let output = "running 2 tests\ntest a ... SKIPPED a: needs root\ntest b ... ok\n\
            test result: ok. 2 passed\nSKIPPED c: needs BPF";
        summary.pass_on(output.as_bytes(), &mut copy);
        assert_eq!(
            summary.skipped,
            ["SKIPPED a: needs root", "SKIPPED c: needs BPF"]
        );
        assert_eq!(summary.results, ["test result: ok. 2 passed"]);
        assert_eq!(copy, output.as_bytes());
    }

    /// Check that the output of a program is read from both streams, and that its failure is one.
    #[test]
    fn programs() {
        let mut summary = Summary::default();
        let mut shell =
            crate::process::command("sh -c 'echo SKIPPED a; echo SKIPPED b >&2; exit 3'");
        assert!(summary.run_to(&mut shell, io::sink()).is_err());
        assert_eq!(summary.skipped.len(), 2);
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
        assert!(summary.require_success().is_err());
    }

    /// Check that skips since the machine stood still are counted apart from others, and fail no run.
    #[test]
    fn stood_still() {
        let mut summary = Summary::default();
        summary.pass_on("SKIPPED vcpu: needs /dev/kvm".as_bytes(), io::sink());
        for name in ["a (bpf)", "b (procfs)"] {
            let line = format!("SKIPPED {name}: {STOOD_STILL}: CPUs 20 %");
            summary.pass_on(line.as_bytes(), io::sink());
        }
        assert_eq!(summary.stood_still(), ["a (bpf)", "b (procfs)"]);
        assert!(summary.require_success().is_ok());
    }
}
