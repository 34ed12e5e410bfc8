//! What the checks said: times, failures, skips.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

/// What a live test says that could not judge a share; see the testkit's `machine.rs`.
const STOOD_STILL: &str = "machine stood still";
/// A run with more such tests is worth nothing.
const MAX_STOOD_STILL: usize = 2;

/// What the checks said.
#[derive(Debug, Default)]
pub struct Summary {
    pub times: Vec<(&'static str, Duration)>,
    pub failed: Vec<String>,
    skipped: Vec<String>,
    results: Vec<String>,
}

impl Summary {
    /// Runs a check, and remembers how long it took and whether it failed.
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
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Prints and keeps a line that begins with `SKIPPED`.
    pub fn skip(&mut self, line: &str) {
        println!("{line}");
        self.skipped.push(line.to_owned());
    }

    /// Runs a program, passes its output on while it comes, and keeps the lines that matter.
    pub fn pass_on(&mut self, command: &mut Command) -> Result<()> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to run {:?}", command.get_program()))?;
        let stdout = child.stdout.take().context("it has no output")?;
        let stderr = child.stderr.take().context("it has no error output")?;
        let from_stderr = std::thread::spawn(move || pass_on(stderr, std::io::stderr()));
        let kept = pass_on(stdout, std::io::stdout());
        let more = from_stderr
            .join()
            .map_err(|_| anyhow!("failed to read its error output"))?;
        let status = child.wait().context("failed to wait for it")?;
        self.keep(kept.into_iter().chain(more));
        if status.success() {
            return Ok(());
        }
        bail!("{:?} failed: {status}", command.get_program())
    }

    /// Passes on the output of a program that has ended.
    pub fn keep_output(&mut self, output: &[u8]) {
        let kept = pass_on(output, std::io::stdout());
        self.keep(kept);
    }

    fn keep(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            if line.starts_with("SKIPPED") {
                self.skipped.push(line);
            } else {
                self.results.push(line);
            }
        }
    }

    /// Names of the tests that could not judge a share because the machine stood still.
    pub fn stood_still(&self) -> Vec<&str> {
        let skipped = self
            .skipped
            .iter()
            .filter(|line| line.contains(STOOD_STILL));
        skipped
            .filter_map(|line| line.strip_prefix("SKIPPED ")?.split(": ").next())
            .collect()
    }

    /// Prints times, failures, skips and counts.
    pub fn print(&self) {
        println!("\n==== summary ====");
        for line in &self.results {
            println!("{line}");
        }
        println!("{} skipped", self.skipped.len());
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

    /// Whether all is well.
    ///
    /// # Errors
    /// When a check failed, or more tests than that were skipped because the machine stood still.
    pub fn verdict(&self) -> Result<()> {
        if !self.failed.is_empty() {
            bail!("failed: {}", self.failed.join(", "));
        }
        let stood_still = self.stood_still();
        if stood_still.len() > MAX_STOOD_STILL {
            bail!(
                "the machine stood still in {} tests, {MAX_STOOD_STILL} are the most: {}; run it again on a \
                 machine whose CPUs are not taken away",
                stood_still.len(),
                stood_still.join(", ")
            );
        }
        Ok(())
    }
}

/// Copies lines until the end and returns those of the summary.
fn pass_on(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut kept = Vec::new();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // A closed terminal must not keep the checks from ending.
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
        assert!(summary.verdict().is_err());
    }

    /// Check that two tests may have met a machine that stood still, three may not, and that other skips
    /// do not count.
    #[test]
    fn few_stand_still() {
        let mut summary = Summary::default();
        summary.skip("SKIPPED vcpu: needs /dev/kvm");
        for name in ["a (bpf)", "b (procfs)"] {
            summary.skip(&format!("SKIPPED {name}: machine stood still: CPUs 20 %"));
        }
        assert_eq!(summary.stood_still(), ["a (bpf)", "b (procfs)"]);
        assert!(summary.verdict().is_ok());
        summary.skip("SKIPPED c (bpf): machine stood still: CPUs 20 %");
        assert!(summary.verdict().is_err());
    }
}
