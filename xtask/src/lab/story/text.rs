//! The story as Markdown, with flame graphs and traces beside it.

use std::fmt::Write;

use super::measure::Measured;
use super::steps::{BLOCK_SIZE, RULES, STEPS, Step, TARGETS};

/// Lines of a tree that are shown.
const MAX_TREE_LINES: usize = 45;

/// The report.
pub fn report(told: &[(&Step, Measured)], seconds: u32, rate: u32) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# A virtual machine on Ceph, tuned step by step\n\n\
         Real ceph-osd, QEMU and librbd of Debian on loopback, one OSD, one guest that reads {} KiB at random\n\
         offsets, 32 at a time, without `/dev/kvm`. wcprof was attached to QEMU for {seconds} s, then to the OSD,\n\
         at {rate} Hz. The order of the steps is that of \"QEMU/KVM + Ceph librbd performance test and deep tuning\n\
         (2022)\". QEMU's emulated CPU takes a core and limits the IOPS here, so they say less than they did there;\n\
         what counts is which time is found, and that it is gone afterwards.\n",
        BLOCK_SIZE / 1024
    );
    out.push_str("| step | guest IOPS | QEMU cores | OSD cores |");
    for target in TARGETS {
        for rule in RULES.iter().filter(|rule| is_told(rule, *target)) {
            let _ = write!(out, " {}: {rule} |", target.name());
        }
    }
    out.push_str("\n|---|---|---|---|");
    for target in TARGETS {
        for _ in RULES.iter().filter(|rule| is_told(rule, *target)) {
            out.push_str("---|");
        }
    }
    out.push('\n');
    for (step, measured) in told {
        row(&mut out, step, measured);
    }
    out.push_str(
        "\nShares are of what the rule's threshold is of (on-CPU time; non-idle time for rbd-cache), over the whole\n\
         process, measured also below the threshold. **Bold**: a finding, heaviest pools in its text below.\n",
    );
    for (step, measured) in told {
        section(&mut out, step, measured);
    }
    out
}

/// Whether some step shows it: an OSD has no rbd cache.
fn is_told(rule: &str, target: super::steps::Target) -> bool {
    STEPS.iter().any(|step| step.is_expected(rule, target))
}

fn row(out: &mut String, step: &Step, measured: &Measured) {
    let _ = write!(
        out,
        "| {}: {} | {:.0} |",
        step.name, step.title, measured.iops
    );
    for target in TARGETS {
        let cores = measured.seen.get(target).map_or(0.0, |seen| seen.cores);
        let _ = write!(out, " {cores:.2} |");
    }
    for (target, seen) in &measured.seen {
        for rule in RULES.iter().filter(|rule| is_told(rule, *target)) {
            let share = seen.share(rule);
            let _ = match seen.findings.iter().any(|f| f == rule) {
                true => write!(out, " **{share}** |"),
                false => write!(out, " {share} |"),
            };
        }
    }
    out.push('\n');
}

fn section(out: &mut String, step: &Step, measured: &Measured) {
    let _ = writeln!(out, "\n## {}: {}", step.name, step.title);
    for (target, seen) in &measured.seen {
        let svg = format!("{}.svg", step.file(*target));
        let trace = format!("{}.wct", step.file(*target));
        let settings = match seen.settings.is_empty() {
            true => "nothing".to_owned(),
            false => seen.settings.join(", "),
        };
        let _ = writeln!(
            out,
            "\n### {}\n\n[flame graph]({svg}), trace `{trace}`. Doctor finds: {settings}.\n\n```\n{}\n```\n",
            target.name(),
            seen.headline
        );
        match seen.hotspots.trim() {
            "" => out.push_str("None of the findings that this story is about.\n"),
            text => {
                let _ = writeln!(out, "```\n{text}\n```");
            }
        }
        let n_lines = seen.tree.lines().count();
        let tree: Vec<&str> = seen.tree.lines().take(MAX_TREE_LINES).collect();
        let _ = writeln!(
            out,
            "\nWhere it runs, `wcprof report {trace} --invert --by pool --state on-cpu --min-percent 5`{}:\n\n```\n{}\n```",
            match n_lines > tree.len() {
                true => format!(" (first {} of {n_lines} lines)", tree.len()),
                false => String::new(),
            },
            tree.join("\n")
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lab::story::measure::{Seen, Share};
    use crate::lab::story::steps::Target;

    /// Check that the table has a row a step with as many cells as its head, and marks findings.
    #[test]
    fn table() {
        let told: Vec<(&Step, Measured)> = STEPS
            .iter()
            .map(|step| {
                let share = Share {
                    percent: 7.5,
                    n_samples: 30,
                };
                let seen = Seen {
                    findings: vec!["rbd-cache".to_owned()],
                    shares: BTreeMap::from([("rbd-cache".to_owned(), share)]),
                    ..Seen::default()
                };
                let seen = BTreeMap::from([(Target::Qemu, seen), (Target::Osd, Seen::default())]);
                (step, Measured { iops: 1234.4, seen })
            })
            .collect();
        let text = report(&told, 20, 199);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(rows.len(), 2 + STEPS.len());
        let n_cells = rows[0].matches('|').count();
        assert!(
            rows.iter().all(|row| row.matches('|').count() == n_cells),
            "{text}"
        );
        assert!(rows[2].contains("| 1234 |") && rows[2].contains("**7.50 %, 30 samples**"));
        assert!(text.contains("(1-cache-qemu.svg)"));
    }
}
