//! The story as Markdown, with flame graphs and traces beside it.

use std::fmt::Write;

use super::measure::Measured;
use super::steps::{BLOCK_SIZE, RULES, STEPS, Step, TARGETS, Target};
use crate::markdown::table;

/// Lines of a tree that are shown.
const MAX_TREE_LINES: usize = 45;

/// The report.
pub fn report(steps: &[(&Step, Measured)], seconds: u32, rate: u32) -> String {
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
    let mut head = ["step", "guest IOPS", "QEMU cores", "OSD cores"]
        .map(str::to_owned)
        .to_vec();
    head.extend(shown().map(|(target, rule)| format!("{}: {rule}", target.name())));
    let rows: Vec<_> = steps
        .iter()
        .map(|(step, measured)| row(step, measured))
        .collect();
    out.push_str(&table(&head, &rows));
    out.push_str(
        "\nShares are of what the rule's threshold is of (on-CPU time; non-idle time for rbd-cache), over the whole\n\
         process, measured also below the threshold. **Bold**: a finding, heaviest pools in its text below.\n",
    );
    for (step, measured) in steps {
        section(&mut out, step, measured);
    }
    out
}

/// What the table shows: an OSD has no rbd cache.
fn shown() -> impl Iterator<Item = (Target, &'static str)> {
    let all = TARGETS
        .iter()
        .flat_map(|target| RULES.iter().map(|rule| (*target, *rule)));
    all.filter(|(target, rule)| STEPS.iter().any(|step| step.is_expected(rule, *target)))
}

fn row(step: &Step, measured: &Measured) -> Vec<String> {
    let mut cells = vec![
        format!("{}: {}", step.name, step.title),
        format!("{:.0}", measured.iops),
    ];
    let seen = |target| measured.seen.get(&target);
    for target in TARGETS {
        let cores = seen(*target).map_or(0.0, |seen| seen.cores);
        cells.push(format!("{cores:.2}"));
    }
    for (target, rule) in shown() {
        let share = seen(target)
            .map(|seen| seen.share(rule))
            .unwrap_or_default();
        let found = seen(target).is_some_and(|seen| seen.findings.iter().any(|f| f == rule));
        let mark = if found { "**" } else { "" };
        cells.push(format!("{mark}{share}{mark}"));
    }
    cells
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
        assert!(rows[2].contains("| 1234 ") && rows[2].contains("**7.50 %, 30 samples**"));
        assert!(text.contains("(1-cache-qemu.svg)"));
    }
}
