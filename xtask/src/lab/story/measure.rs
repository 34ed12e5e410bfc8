//! Attaches wcprof to a step's processes, and reads what it says of the traces.
//!
//! Next to the findings, the share of each rule is measured also where it is below the rule's
//! threshold: by a copy of the rule with none.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use serde_json::Value;

use super::steps::{RULES, Step, TARGETS, Target};
use crate::cpu_time::cpu_time;
use crate::lab::place::Lab;
use crate::lab::vm;
use crate::lab::wcprof::{Wcprof, rules};
use crate::process::{root, wait_until};

/// Prefix of the copies' ids.
const PROBE: &str = "probe-";

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

    /// What is not as it must be, a line each.
    pub fn wrong(&self, step: &Step) -> Vec<String> {
        let mut wrong = Vec::new();
        for (target, seen) in &self.seen {
            for rule in RULES {
                let expected = step.is_expected(rule, *target);
                let found = seen.findings.iter().any(|f| f == rule);
                let share = seen.share(rule);
                let place = format!("{}, {}: {rule}", step.name, target.name());
                if expected && !found {
                    wrong.push(format!("{place} is not found ({share})"));
                }
                if !expected && found {
                    wrong.push(format!("{place} is found ({share})"));
                }
                // Below a threshold is not gone.
                if !expected && share.percent > residue(rule) {
                    wrong.push(format!("{place} is not gone ({share})"));
                }
            }
            let settings = step.settings(*target);
            for id in ["qemu-rbd-cache", "libc-malloc", "msgr-secure"] {
                let found = seen.settings.iter().any(|s| s == id);
                if found != settings.contains(&id) {
                    let what = if found { "finds" } else { "does not find" };
                    let name = target.name();
                    wrong.push(format!("{}, {name}: doctor {what} {id}", step.name));
                }
            }
        }
        wrong
    }
}

/// Percent of a process's time that may be left where a rule must find nothing.
fn residue(rule: &str) -> f64 {
    match rule {
        // Libraries that were loaded before may hold on to libc's.
        "libc-malloc" => 0.5,
        // No frame at all.
        _ => 0.0,
    }
}

/// Rules without thresholds.
#[derive(Debug)]
pub struct Probes(PathBuf);

impl Probes {
    /// Writes them.
    ///
    /// # Errors
    /// When a built-in rule is not as expected.
    pub fn write(wcprof: &Wcprof) -> Result<Self> {
        let folder = wcprof.folder.join("probes");
        fs::create_dir_all(&folder)?;
        for rule in RULES {
            let probe = probe(rule, &fs::read_to_string(rule_file(rule))?).context(*rule)?;
            fs::write(folder.join(format!("{rule}.toml")), probe)?;
        }
        Ok(Self(folder))
    }
}

/// The file of a built-in rule.
fn rule_file(rule: &str) -> PathBuf {
    root().join(format!("crates/wcprof-findings/rules/{rule}.toml"))
}

/// Attaches to the processes of a step, one after the other.
///
/// # Errors
/// When one does not run, or wcprof fails.
pub fn measure(wcprof: &Wcprof, probes: &Probes, lab: &Lab, step: &Step) -> Result<Measured> {
    let machine = lab.machine()?.context("QEMU does not run")?;
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
        seen.insert(*target, attach(wcprof, &step.file(*target), pid)?);
    }
    more(n_before + 1)?;
    let reports = vm::reports(lab);
    let during = reports.get(n_before..).unwrap_or_default();
    let iops = during.iter().sum::<f64>() / during.len().max(1) as f64;
    ensure!(iops > 0.0, "the guest does not read any more");
    // Names are looked up and trees are drawn when nothing is measured any more.
    for (target, seen) in &mut seen {
        read(wcprof, probes, &step.file(*target), seen)?;
    }
    Ok(Measured { iops, seen })
}

fn attach(wcprof: &Wcprof, name: &str, pid: i32) -> Result<Seen> {
    let start = (Instant::now(), cpu_time(pid)?);
    let svg = wcprof.folder.join(format!("{name}.svg"));
    let svg = svg.to_str().context("the folder's name is no text")?;
    let text = wcprof.attach(name, &[pid], &["--flamegraph", svg])?;
    let cpu = cpu_time(pid)?.saturating_sub(start.1);
    Ok(Seen {
        headline: text.lines().take(4).collect::<Vec<_>>().join("\n"),
        cores: cpu.as_secs_f64() / start.0.elapsed().as_secs_f64(),
        ..Seen::default()
    })
}

/// What wcprof says of a trace.
fn read(wcprof: &Wcprof, probes: &Probes, name: &str, seen: &mut Seen) -> Result<()> {
    let probes = probes.0.to_str().context("the folder's name is no text")?;
    let found = wcprof.json(name, &["hotspots", "--rules", probes])?;
    for finding in found["findings"].as_array().into_iter().flatten() {
        let rule = finding["rule"].as_str().unwrap_or_default();
        match rule.strip_prefix(PROBE) {
            Some(rule) => {
                seen.shares.insert(rule.to_owned(), share(finding));
            }
            None => seen.findings.push(rule.to_owned()),
        }
    }
    seen.settings = rules(&wcprof.json(name, &["doctor"])?);
    let text = wcprof.text(name, &["hotspots"])?;
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
    let tree = "report --invert --by pool --state on-cpu --min-percent 5";
    let tree: Vec<&str> = tree.split(' ').collect();
    seen.tree = wcprof.text(name, &tree)?;
    Ok(())
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
    use crate::lab::story::steps::STEPS;

    /// Check that each rule of the story has the form that its probe is made from.
    #[test]
    fn probes() {
        for rule in RULES {
            let text = fs::read_to_string(rule_file(rule)).unwrap();
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

    fn measured(step: &Step, change: impl Fn(&mut Seen)) -> Measured {
        let seen = |target: Target| {
            let found = RULES.iter().filter(|r| step.is_expected(r, target));
            let mut seen = Seen {
                findings: found.map(|r| (*r).to_owned()).collect(),
                settings: step
                    .settings(target)
                    .iter()
                    .map(|s| (*s).to_owned())
                    .collect(),
                ..Seen::default()
            };
            change(&mut seen);
            (target, seen)
        };
        Measured {
            iops: 1.0,
            seen: TARGETS.iter().map(|t| seen(*t)).collect(),
        }
    }

    /// Check that each step passes with what it must show, and that all of it changes along the way.
    #[test]
    fn expected() {
        for step in STEPS {
            assert!(measured(step, |_| ()).wrong(step).is_empty());
        }
        for rule in RULES {
            let seen: Vec<bool> = STEPS
                .iter()
                .map(|step| step.is_expected(rule, Target::Qemu))
                .collect();
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
