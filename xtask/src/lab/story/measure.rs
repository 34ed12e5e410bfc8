//! Attaches wcprof to a step's processes, and reads what it says of the traces.
//!
//! Next to the findings, the share of each rule is measured also where it is below the rule's
//! threshold: by a copy of the rule with none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use super::steps::{OSD, QEMU, RULES, Step, Target};
use crate::cpu_time::cpu_time;
use crate::lab::place::Lab;
use crate::lab::vm;
use crate::lab::wcprof::{Wcprof, rules};
use crate::process::{list, number, quoted, root, text, wait_until};

/// Prefix of the copies' ids.
const PROBE: &str = "probe-";

/// A step's figures.
#[derive(Debug)]
pub struct Measured {
    /// Operations a second that the guest counted while wcprof was attached.
    pub iops: f64,
    /// What wcprof says of each process.
    pub seen: Vec<(Target, Seen)>,
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

    pub fn has(&self, rule: &str) -> bool {
        self.findings.iter().any(|found| found == rule)
    }
}

/// What a rule counts, without its threshold.
#[derive(Debug, Default, Clone, Copy)]
pub struct Share {
    /// Percent of the time that the rule's threshold is a share of, in the whole process.
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
    /// Findings that are missing or should be gone, a line each.
    pub fn wrong(&self, step: &Step) -> Vec<String> {
        let mut wrong = Vec::new();
        for (target, seen) in &self.seen {
            for (rule, setting) in RULES {
                let (share, expected) = (seen.share(rule), step.is_expected(rule, target));
                let place = format!("{}, {target}", step.name);
                let not = if expected { "not " } else { "" };
                if seen.has(rule) != expected {
                    wrong.push(format!("{place}: {rule} is {not}found ({share})"));
                }
                // Below a threshold is not gone. Libraries that were loaded before may hold on to libc's malloc.
                let residue = if rule == "libc-malloc" { 0.5 } else { 0.0 };
                if !expected && share.percent > residue {
                    wrong.push(format!("{place}: {rule} is not gone ({share})"));
                }
                if seen.settings.iter().any(|s| s == setting) != expected {
                    wrong.push(format!("{place}: doctor: {setting} is {not}found"));
                }
            }
        }
        wrong
    }
}

/// Writes rules without thresholds.
///
/// # Errors
/// When a built-in rule is not as expected.
pub fn write_probes(wcprof: &Wcprof) -> Result<()> {
    fs::create_dir_all(probes(wcprof))?;
    for (rule, _) in RULES {
        let probe = probe(rule, &fs::read_to_string(rule_file(rule))?).context(rule)?;
        fs::write(probes(wcprof).join(format!("{rule}.toml")), probe)?;
    }
    Ok(())
}

fn probes(wcprof: &Wcprof) -> PathBuf {
    wcprof.folder.join("probes")
}

/// The file of a built-in rule.
fn rule_file(rule: &str) -> PathBuf {
    root().join(format!("crates/wcprof-findings/rules/{rule}.toml"))
}

/// Attaches to the processes of a step, one after the other.
///
/// # Errors
/// When one does not run, or wcprof fails.
pub fn measure(wcprof: &Wcprof, lab: &Lab, step: &Step) -> Result<Measured> {
    let qemu = lab.machine()?.context("QEMU does not run")?.pid;
    let osd = lab.osd()?.pid;
    // The line that the boot waited for is of the first seconds.
    let n_before = vm::reports(lab).len() + 1;
    let more = |n: usize| wait_until("the guest reports", 60, || Ok(vm::reports(lab).len() >= n));
    more(n_before)?;
    let mut seen = Vec::new();
    for (target, pid) in [(QEMU, qemu), (OSD, osd)] {
        seen.push((target, attach(wcprof, &step.file(target), pid)?));
    }
    more(n_before + 1)?;
    let reports = vm::reports(lab);
    let during = reports.get(n_before..).unwrap_or_default();
    let iops = during.iter().sum::<f64>() / during.len().max(1) as f64;
    ensure!(iops > 0.0, "the guest does not read any more");
    // Names are looked up and trees are drawn when nothing is measured any more.
    for (target, seen) in &mut seen {
        read(wcprof, &step.file(target), seen)?;
    }
    Ok(Measured { iops, seen })
}

fn attach(wcprof: &Wcprof, name: &str, pid: i32) -> Result<Seen> {
    let (start, before) = (Instant::now(), cpu_time(pid)?);
    let svg = quoted(wcprof.folder.join(format!("{name}.svg")));
    let text = wcprof.attach(name, &[pid], &format!("--flamegraph {svg}"))?;
    let cpu = cpu_time(pid)?.saturating_sub(before);
    Ok(Seen {
        headline: text.lines().take(4).collect::<Vec<_>>().join("\n"),
        cores: cpu.as_secs_f64() / start.elapsed().as_secs_f64(),
        ..Seen::default()
    })
}

/// What wcprof says of a trace.
fn read(wcprof: &Wcprof, name: &str, seen: &mut Seen) -> Result<()> {
    let probes = quoted(probes(wcprof));
    let found = wcprof.json(name, &format!("doctor --rules {probes}"))?;
    let is_of_time = |finding: &&Value| finding["basis"]["kind"] == "time";
    for finding in list(&found["findings"]).filter(is_of_time) {
        let rule = text(&finding["rule"]);
        match rule.strip_prefix(PROBE) {
            Some(rule) => drop(seen.shares.insert(rule.to_owned(), share(finding))),
            None => seen.findings.push(rule.to_owned()),
        }
    }
    seen.settings = rules(&found, "setting");
    let findings = wcprof.text(name, "doctor")?;
    let is_shown = |finding: &&str| {
        let first = finding.lines().next().unwrap_or_default();
        RULES
            .iter()
            .any(|(rule, _)| first.contains(&format!("({rule})")))
    };
    seen.hotspots = findings
        .split("\n\n")
        .filter(is_shown)
        .collect::<Vec<_>>()
        .join("\n\n");
    seen.tree = wcprof.text(name, TREE)?;
    Ok(())
}

/// Where a process runs.
pub const TREE: &str = "report --invert --by pool --state on-cpu --min-percent 5";

fn share(finding: &Value) -> Share {
    let basis = &finding["basis"];
    let base = match text(&basis["base"]) {
        "on-cpu" => "on_cpu_ns",
        "non-idle" => "non_idle_ns",
        _ => "wall_ns",
    };
    Share {
        percent: 100.0 * number(&basis["matched_ns"]) / number(&basis[base]).max(1.0),
        n_samples: number(&basis["n_samples"]) as u64,
    }
}

/// A rule that counts the same and always finds it, over the whole process.
fn probe(id: &str, rule: &str) -> Result<String> {
    const LEAST: &str =
        "[threshold]\nscope = \"process\"\npercent = 0.000001\nmin_wall_percent = 0.000001";
    let id_line = format!("id = \"{id}\"");
    ensure!(
        rule.lines().any(|l| l == id_line),
        "the rule has another id"
    );
    ensure!(rule.lines().any(|l| l == "[threshold]"), "no threshold");
    let limits = ["scope = ", "percent = ", "min_wall_percent = "];
    let lines = rule
        .lines()
        .filter(|line| !limits.iter().any(|limit| line.starts_with(limit)));
    let lines = lines.map(|line| match line {
        "[threshold]" => LEAST.to_owned(),
        line if line == id_line => format!("id = \"{PROBE}{id}\""),
        line => line.to_owned(),
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::story::steps::{STEPS, TARGETS};

    /// Check that each rule of the story has the form that its probe is made from.
    #[test]
    fn probes() {
        for (rule, _) in RULES {
            let text = fs::read_to_string(rule_file(rule)).unwrap();
            let probe = probe(rule, &text).unwrap();
            assert!(probe.contains(&format!("id = \"probe-{rule}\"")));
            assert_eq!(probe.matches("\nscope = ").count(), 1);
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

    fn measured(step: &Step, change: impl Fn(&mut Seen)) -> Measured {
        let seen = |target: Target| {
            let found = RULES
                .iter()
                .filter(|(rule, _)| step.is_expected(rule, target));
            let mut seen = Seen {
                findings: found.clone().map(|(rule, _)| (*rule).to_owned()).collect(),
                settings: found.map(|(_, setting)| (*setting).to_owned()).collect(),
                ..Seen::default()
            };
            change(&mut seen);
            (target, seen)
        };
        Measured {
            iops: 1.0,
            seen: TARGETS.map(seen).into(),
        }
    }

    /// Check that each step passes with what it must show, and that all of it changes along the way.
    #[test]
    fn expected() {
        for step in &STEPS {
            assert!(measured(step, |_| ()).wrong(step).is_empty());
        }
        for (rule, _) in RULES {
            let seen = STEPS.each_ref().map(|step| step.is_expected(rule, QEMU));
            assert!(seen.contains(&true) && seen.contains(&false), "{rule}");
        }
    }

    /// Check that an extra finding, a missing one, and time that should be gone are reported.
    #[test]
    fn deviations() {
        let step = &STEPS[1];
        let wrong = |change: &dyn Fn(&mut Seen)| measured(step, change).wrong(step).len();
        assert_eq!(wrong(&|seen| seen.findings.clear()), 2);
        assert_eq!(wrong(&|seen| seen.findings.push("rbd-cache".to_owned())), 2);
        assert_eq!(wrong(&|seen| seen.settings.clear()), 2);
        let some = Share {
            percent: 0.01,
            n_samples: 1,
        };
        let left = |seen: &mut Seen| {
            seen.shares.insert("aes-gcm".to_owned(), some);
        };
        assert_eq!(wrong(&left), 2);
    }
}
