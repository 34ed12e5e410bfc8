//! A program to the time and memory that it takes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// What a run took, or that it took too long.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Done(Usage),
    /// Not done after so many seconds; what it took until then.
    TooLong(u32, Usage),
}

/// Time and memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    wall: f64,
    cpu: f64,
    /// Peak resident memory, KiB.
    memory: f64,
}

impl Outcome {
    /// Wall-clock seconds, CPU seconds, peak megabytes.
    pub(super) fn cells(self) -> [String; 3] {
        let (mark, usage) = match self {
            Self::Done(usage) => ("", usage),
            Self::TooLong(_, usage) => ("> ", usage),
        };
        [
            format!("{mark}{:.2}", usage.wall),
            format!("{mark}{:.2}", usage.cpu),
            format!("{mark}{:.0}", usage.memory / 1024.0),
        ]
    }

    /// Both, one after the other.
    pub(super) fn then(self, other: Self) -> Self {
        let sum = |a: Usage, b: Usage| Usage {
            wall: a.wall + b.wall,
            cpu: a.cpu + b.cpu,
            memory: a.memory.max(b.memory),
        };
        match (self, other) {
            (Self::Done(a), Self::Done(b)) => Self::Done(sum(a, b)),
            (Self::TooLong(limit, a), Self::Done(b) | Self::TooLong(_, b))
            | (Self::Done(a), Self::TooLong(limit, b)) => Self::TooLong(limit, sum(a, b)),
        }
    }

    fn wall(self) -> f64 {
        match self {
            Self::Done(usage) | Self::TooLong(_, usage) => usage.wall,
        }
    }
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Done(Usage::default())
    }
}

/// Most seconds for a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(pub(super) u32);

impl Limit {
    /// Runs a program to its end, or to the limit, under GNU time.
    pub(super) fn measure(self, command: &mut Command, input: Option<&Path>) -> Result<Outcome> {
        let mut timed = Command::new("/usr/bin/time");
        timed.args(["-f", "wcprof-bench %e %U %S %M"]);
        timed.args(["timeout", "--kill-after=5", &self.0.to_string()]);
        timed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => timed.env(name, value),
                None => timed.env_remove(name),
            };
        }
        // What is measured is this machine, not the network.
        timed.env_remove("DEBUGINFOD_URLS");
        let input = match input {
            Some(path) => Stdio::from(fs::File::open(path)?),
            None => Stdio::null(),
        };
        let output = timed
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .context("failed to run `/usr/bin/time`")?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("wcprof-bench "))
            .with_context(|| format!("`{command:?}` was not measured: {text}"))?;
        let fields: Vec<f64> = line.split(' ').filter_map(|f| f.parse().ok()).collect();
        let [wall, user, system, memory] = fields[..] else {
            bail!("`{command:?}` failed: {text}");
        };
        let usage = Usage {
            wall,
            cpu: user + system,
            memory,
        };
        // timeout(1): 124 when the limit was met, 137 when the program had to be killed.
        match output.status.code() {
            Some(0) => Ok(Outcome::Done(usage)),
            Some(124 | 137) => Ok(Outcome::TooLong(self.0, usage)),
            _ => bail!("`{command:?}` failed: {text}"),
        }
    }
}

/// The run whose wall-clock time is the median.
pub(super) fn median(runs: u32, mut run: impl FnMut() -> Result<Outcome>) -> Result<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..runs {
        outcomes.push(run()?);
    }
    outcomes.sort_by(|a, b| a.wall().total_cmp(&b.wall()));
    let middle = outcomes.get(outcomes.len() / 2);
    middle.copied().context("no run was asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a program that ends is measured, one that does not is cut and marked, and one that
    /// fails is an error.
    #[test]
    fn ends() {
        if !Path::new("/usr/bin/time").exists() {
            println!("SKIPPED ends: needs GNU time");
            return;
        }
        let run = |script: &str| {
            let mut command = Command::new("sh");
            Limit(1).measure(command.args(["-c", script]), None)
        };
        assert!(matches!(run("exit 0").unwrap(), Outcome::Done(_)));
        let cut = run("while :; do :; done").unwrap();
        assert!(matches!(cut, Outcome::TooLong(1, _)));
        assert!(cut.cells()[0].starts_with("> "));
        assert!(run("exit 3").is_err());
        let both = cut.then(run("exit 0").unwrap());
        assert!(matches!(both, Outcome::TooLong(1, _)));
    }
}
