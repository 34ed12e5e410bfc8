//! Attaches wcprof to a step's processes, and reads what it says of the traces.
//!
//! Next to the findings, the share of each rule is measured also where it is below the rule's
//! threshold: by a copy of the rule with none.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::steps::{RULES, Step, TARGETS, Target};
use crate::lab::fio::cpu_time;
use crate::lab::{Daemon, Lab, create_folder, vm, wait_until, write};
use crate::process::{capture, root};

/// Prefix of the copies' ids.
const PROBE: &str = "probe-";

/// wcprof, and how it records.
#[derive(Debug)]
pub struct Wcprof {
    pub program: PathBuf,
    /// For all that is written.
    pub folder: PathBuf,
    pub seconds: u32,
    pub rate: u32,
}

/// A step's figures.
#[derive(Debug)]
pub struct Measured {
    /// Operations a second that the guest counted while wcprof was attached.
    pub iops: f64,
    pub seen: BTreeMap<Target, Seen>,
}

/// What wcprof says of a process.
#[derive(Debug, Default)]
pub struct Seen {
    /// Ids of the rules that found something.
    pub findings: Vec<String>,
    /// Ids of doctor's findings.
    pub settings: Vec<String>,
    /// By rule; absent: no sample at all.
    pub shares: BTreeMap<String, Share>,
    /// First lines of `wcprof attach`.
    pub headline: String,
    /// Findings that the story is about, as text.
    pub hotspots: String,
    /// Inverted tree of on-CPU time.
    pub tree: String,
    /// CPU time of the process, of one core.
    pub cores: f64,
}

impl Seen {
    pub fn share(&self, rule: &str) -> Share {
        self.shares.get(rule).copied().unwrap_or_default()
    }
}

/// What a rule counts, without its threshold.
#[derive(Debug, Default, Clone, Copy)]
pub struct Share {
    /// Of what the rule's threshold is of, in the whole process.
    pub percent: f64,
    pub n_samples: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.n_samples {
            0 => f.write_str("0, no sample"),
            n => write!(f, "{:.2} %, {n} samples", self.percent),
        }
    }
}

impl Measured {
    pub fn summary(&self) -> Vec<String> {
        let mut lines = vec![format!("guest: {:.0} IOPS", self.iops)];
        for (target, seen) in &self.seen {
            let shares: Vec<String> = RULES
                .iter()
                .map(|rule| {
                    let found = match seen.findings.iter().any(|f| f == rule) {
                        true => "found",
                        false => "not found",
                    };
                    format!("{rule} {found} ({})", seen.share(rule))
                })
                .collect();
            lines.push(format!(
                "{}: {}; doctor: {}",
                target.name(),
                shares.join("; "),
                seen.settings.join(", ")
            ));
        }
        lines
    }
}

impl Wcprof {
    /// Writes the rules without thresholds.
    ///
    /// # Errors
    /// When a built-in rule is not as expected.
    pub fn write_probes(&self) -> Result<()> {
        create_folder(&self.probes())?;
        for rule in RULES {
            let path = root()?.join(format!("crates/wcprof-findings/rules/{rule}.toml"));
            let text = fs::read_to_string(&path)
                .with_context(|| format!("failed to read `{}`", path.display()))?;
            let probe = probe(rule, &text).with_context(|| format!("`{}`", path.display()))?;
            write(&self.probes().join(format!("{rule}.toml")), probe)?;
        }
        Ok(())
    }

    fn probes(&self) -> PathBuf {
        self.folder.join("probes")
    }

    /// Attaches to the processes of a step, one after the other.
    ///
    /// # Errors
    /// When one does not run, or wcprof fails.
    pub fn measure(&self, lab: &Lab, step: &Step) -> Result<Measured> {
        let machine = Daemon::running(&lab.cluster(), "vm")?.context("QEMU does not run")?;
        let osd = lab.osd()?;
        // The line that the boot waited for is of the first seconds.
        let n_before = vm::reports(lab).len() + 1;
        let more = |n: usize| {
            wait_until("the guest reports", Duration::from_secs(60), || {
                Ok(vm::reports(lab).len() >= n)
            })
        };
        more(n_before)?;
        let mut seen = BTreeMap::new();
        for target in TARGETS {
            let pid = match target {
                Target::Qemu => machine.pid,
                Target::Osd => osd.pid,
            };
            seen.insert(*target, self.attach(step, *target, pid)?);
        }
        more(n_before + 1)?;
        let reports = vm::reports(lab);
        let during = reports.get(n_before..).unwrap_or_default();
        let iops = during.iter().sum::<f64>() / during.len().max(1) as f64;
        ensure!(iops > 0.0, "the guest does not read any more");
        // Names are looked up and trees are drawn when nothing is measured any more.
        for (target, seen) in &mut seen {
            self.read(&self.folder.join(step.file(*target, "wct")), seen)?;
        }
        Ok(Measured { iops, seen })
    }

    fn attach(&self, step: &Step, target: Target, pid: i32) -> Result<Seen> {
        let trace = self.folder.join(step.file(target, "wct"));
        let start = (Instant::now(), cpu_time(pid)?);
        let mut command = self.command(&["attach", &pid.to_string()]);
        command
            .args(["--duration", &self.seconds.to_string()])
            .args(["--rate", &self.rate.to_string(), "--output"])
            .arg(&trace)
            .arg("--flamegraph")
            .arg(self.folder.join(step.file(target, "svg")));
        let text = capture(&mut command)?;
        let cpu = cpu_time(pid)?.saturating_sub(start.1);
        Ok(Seen {
            headline: text.lines().take(4).collect::<Vec<_>>().join("\n"),
            cores: cpu.as_secs_f64() / start.0.elapsed().as_secs_f64(),
            ..Seen::default()
        })
    }

    /// What wcprof says of a trace.
    fn read(&self, trace: &Path, seen: &mut Seen) -> Result<()> {
        let json = |command: &mut Command| -> Result<Value> {
            serde_json::from_str(&capture(command.arg(trace))?).context("failed to parse JSON")
        };
        let probes = self.probes();
        let found = json(self.command(&["hotspots", "--json", "--rules"]).arg(probes))?;
        for finding in found["findings"].as_array().into_iter().flatten() {
            let rule = finding["rule"].as_str().unwrap_or_default();
            match rule.strip_prefix(PROBE) {
                Some(rule) => {
                    seen.shares.insert(rule.to_owned(), share(finding));
                }
                None => seen.findings.push(rule.to_owned()),
            }
        }
        let found = json(&mut self.command(&["doctor", "--json"]))?;
        let ids = found["findings"].as_array().into_iter().flatten();
        seen.settings = ids
            .filter_map(|f| Some(f["rule"].as_str()?.to_owned()))
            .collect();
        let text = capture(self.command(&["hotspots"]).arg(trace))?;
        seen.hotspots = text
            .split("\n\n")
            .filter(|finding| {
                let first = finding.lines().next().unwrap_or_default();
                RULES
                    .iter()
                    .any(|rule| first.contains(&format!("({rule})")))
            })
            .collect::<Vec<_>>()
            .join("\n\n");
        let tree = ["report", "--invert", "--by", "pool", "--state", "on-cpu"];
        seen.tree = capture(self.command(&tree).args(["--min-percent", "5"]).arg(trace))?;
        Ok(())
    }

    /// Copies a trace without what is this host's own.
    ///
    /// # Errors
    /// When wcprof fails.
    pub fn anonymize(&self, trace: &Path, to: &Path) -> Result<()> {
        let mut command = self.command(&["merge", "--anonymous"]);
        capture(command.arg(trace).arg("--output").arg(to)).map(|_| ())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("NO_COLOR", "1")
            .env("COLUMNS", "110")
            .env_remove("DEBUGINFOD_URLS");
        command
    }
}

fn share(finding: &Value) -> Share {
    let basis = &finding["basis"];
    let ns = |key: &str| basis[key].as_f64().unwrap_or(0.0);
    let of = match basis["base"].as_str() {
        Some("on-cpu") => ns("on_cpu_ns"),
        Some("non-idle") => ns("non_idle_ns"),
        _ => ns("wall_ns"),
    };
    Share {
        percent: 100.0 * ns("matched_ns") / of.max(1.0),
        n_samples: basis["n_samples"].as_u64().unwrap_or(0),
    }
}

/// A rule that counts the same and always finds it, over the whole process.
fn probe(id: &str, rule: &str) -> Result<String> {
    const LEAST: &str =
        "scope = \"process\"\npercent = 0.000001\nmin_wall_percent = 0.000001\nmin_samples = 1";
    let mut n_changed = 0;
    let lines: Vec<String> = rule
        .lines()
        .map(|line| {
            if line == format!("id = \"{id}\"") {
                n_changed += 1;
                return format!("id = \"{PROBE}{id}\"");
            }
            if line.starts_with("percent = ") {
                n_changed += 1;
                return LEAST.to_owned();
            }
            line.to_owned()
        })
        .collect();
    ensure!(n_changed == 2, "the rule has another form");
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each rule of the story has the form that its probe is made from.
    #[test]
    fn probes() {
        for rule in RULES {
            let path = root()
                .unwrap()
                .join(format!("crates/wcprof-findings/rules/{rule}.toml"));
            let text = fs::read_to_string(path).unwrap();
            let probe = probe(rule, &text).unwrap();
            assert!(probe.contains(&format!("id = \"probe-{rule}\"")));
            assert!(probe.contains("min_samples = 1"));
        }
        assert!(probe("x", "id = \"y\"").is_err());
    }

    /// Check that a share is of what the threshold is of.
    #[test]
    fn shares() {
        let finding = |base: &str| {
            serde_json::json!({"basis": {"base": base, "matched_ns": 5, "n_samples": 2,
                "on_cpu_ns": 10, "non_idle_ns": 50, "wall_ns": 100}})
        };
        for (base, percent) in [("on-cpu", 50.0), ("non-idle", 10.0), ("wall", 5.0)] {
            assert!(
                (share(&finding(base)).percent - percent).abs() < 1e-9,
                "{base}"
            );
        }
    }
}
