//! What the agent says of itself, and what the kernel says of its processes, at a moment.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result};
use fs_err as fs;

/// The agent at a moment.
pub(super) struct AgentHealth {
    pub(super) at: Instant,
    metrics: BTreeMap<String, f64>,
    /// Of all its processes, by `/proc`.
    pub(super) kernel: KernelCounts,
}

/// What processes take.
#[derive(Default, Clone, Copy)]
pub(super) struct KernelCounts {
    /// Bytes of resident memory (`VmRSS`), summed.
    pub(super) memory: f64,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

impl AgentHealth {
    /// Asks `/metrics`, and reads `/proc` of a process and its descendants.
    pub(super) fn read(address: &str, pid: i32) -> Result<Self> {
        let mut stream = TcpStream::connect(address).context("the agent serves no metrics")?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let lines = answer.lines().filter_map(|line| line.rsplit_once(' '));
        let values = lines.filter_map(|(name, value)| {
            let name = name.strip_prefix("wcprof_")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Self {
            at: Instant::now(),
            metrics: values.collect(),
            kernel: KernelCounts::of(pid),
        })
    }

    /// The value of a metric; of one that has labels the sum of all.
    pub(super) fn value(&self, name: &str) -> f64 {
        let is_it = |key: &str| key.split('{').next() == Some(name);
        let mut values = self.metrics.iter().filter(|(key, _)| is_it(key)).peekable();
        match values.peek() {
            Some(_) => values.map(|(_, value)| value).sum(),
            None => f64::NAN,
        }
    }

    /// Of a metric that counts, what it grew by a second since then.
    pub(super) fn rate(&self, before: &Self, name: &str) -> f64 {
        let wall = (self.at - before.at).as_secs_f64();
        (self.value(name) - before.value(name)) / wall
    }

    /// CPU time since then in percent of a core: without looking up names, and of that.
    pub(super) fn cpu_percent(&self, before: &Self) -> (f64, f64) {
        let names = 100.0 * self.rate(before, "names_cpu_seconds_total");
        let all = 100.0 * self.rate(before, "cpu_seconds_total");
        (all - names, names)
    }

    /// A row of the curve.
    pub(super) fn line(&self, before: &Self) -> String {
        let (own, names) = self.cpu_percent(before);
        let kernel = self.kernel;
        format!(
            "{own:>5.2} % {names:>4.1} % {:>4.0} MB {:>12} {:>7} {:>14.0}",
            kernel.memory / 1e6,
            kernel.descriptors,
            kernel.threads,
            self.rate(before, "observations_total"),
        )
    }
}

impl KernelCounts {
    /// Of a process and its descendants. What ends meanwhile counts nothing.
    fn of(pid: i32) -> Self {
        let mut all = Self::default();
        for pid in family(pid) {
            let folder = format!("/proc/{pid}");
            let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
            let entries = |name: &str| {
                let entries = fs::read_dir(format!("{folder}/{name}"));
                entries.map_or(0, Iterator::count)
            };
            all.memory += resident(&status);
            all.descriptors += entries("fd");
            all.threads += entries("task");
        }
        all
    }
}

/// A process and its descendants.
pub(super) fn family(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    for task in fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        all.extend(children.flat_map(family));
    }
    all
}

/// Bytes of `VmRSS` in the text of `/proc/PID/status`.
fn resident(status: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that this process and a child of it are counted, and that memory is in bytes.
    #[test]
    fn counted() {
        let own = std::process::id().cast_signed();
        let before = KernelCounts::of(own);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let after = KernelCounts::of(own);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(after.threads > before.threads && after.descriptors > before.descriptors);
        assert!(before.memory > 1e6 && before.threads > 0);
        assert_eq!(resident("Name:\tx\nVmRSS:\t     12 kB\n"), 12_288.0);
    }
}
