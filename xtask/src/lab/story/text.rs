//! The story as Markdown, with flame graphs and traces beside it.

use super::measure::{Measured, TREE};
use super::steps::{BLOCK_SIZE, RULES, STEPS, Step, TARGETS, Target};
use crate::markdown::table;

/// Lines of a tree that are shown.
const MAX_TREE_LINES: usize = 45;

/// A step's figures in short.
pub fn summary(measured: &Measured) -> String {
    let mut out = format!("guest: {:.0} IOPS\n", measured.iops);
    for (target, seen) in &measured.seen {
        let shares = RULES.map(|(rule, _)| {
            let not = if seen.has(rule) { "" } else { "not " };
            format!("{rule} {not}found ({})", seen.share(rule))
        });
        let settings = seen.settings.join(", ");
        out += &format!("{target}: {}; doctor: {settings}\n", shares.join("; "));
    }
    out
}

/// The report.
pub fn report(steps: &[(&Step, Measured)], seconds: u32, rate: u32) -> String {
    let mut head = ["step", "guest IOPS", "qemu cores", "osd cores"]
        .map(str::to_owned)
        .to_vec();
    head.extend(shown().map(|(target, rule)| format!("{target}: {rule}")));
    let rows: Vec<_> = steps
        .iter()
        .map(|(step, measured)| row(step, measured))
        .collect();
    let sections = steps.iter().map(|(step, measured)| section(step, measured));
    format!(
        "# A virtual machine on Ceph, tuned step by step\n\n\
         Real ceph-osd, QEMU and librbd of Debian on loopback, one OSD, one guest that reads {} KiB at random\n\
         offsets, 32 at a time, without `/dev/kvm`. wcprof was attached to QEMU for {seconds} s, then to the OSD,\n\
         at {rate} Hz. The order of the steps is that of \"QEMU/KVM + Ceph librbd performance test and deep tuning\n\
         (2022)\". QEMU's emulated CPU takes a core and limits the IOPS here, so they say less than they did there;\n\
         what counts is which time is found, and that it is gone afterwards.\n\n{}\n\
         Shares are of the time that the rule's threshold is a share of (on-CPU time; non-idle time for rbd-cache),\n\
         over the whole process, measured also below the threshold. **Bold**: a finding, heaviest pools in its text\n\
         below.\n{}",
        BLOCK_SIZE / 1024,
        table(&head, &rows),
        sections.collect::<String>()
    )
}

/// What the table shows: an OSD has no rbd cache.
fn shown() -> impl Iterator<Item = (Target, &'static str)> {
    let all = TARGETS
        .into_iter()
        .flat_map(|target| RULES.map(|(rule, _)| (target, rule)));
    all.filter(|(target, rule)| STEPS.iter().any(|step| step.is_expected(rule, target)))
}

fn row(step: &Step, measured: &Measured) -> Vec<String> {
    let mut cells = vec![
        format!("{}: {}", step.name, step.title),
        format!("{:.0}", measured.iops),
    ];
    cells.extend(
        measured
            .seen
            .iter()
            .map(|(_, seen)| format!("{:.2}", seen.cores)),
    );
    for (target, rule) in shown() {
        let seen = measured.seen.iter().filter(|(of, _)| *of == target);
        cells.extend(seen.map(|(_, seen)| {
            let mark = if seen.has(rule) { "**" } else { "" };
            format!("{mark}{}{mark}", seen.share(rule))
        }));
    }
    cells
}

fn section(step: &Step, measured: &Measured) -> String {
    let mut out = format!("\n## {}: {}\n", step.name, step.title);
    for (target, seen) in &measured.seen {
        let file = step.file(target);
        let settings = seen.settings.join(", ");
        let hotspots = match seen.hotspots.trim() {
            "" => "None of the findings that this story is about.".to_owned(),
            text => format!("```\n{text}\n```"),
        };
        let tree: Vec<&str> = seen.tree.lines().take(MAX_TREE_LINES).collect();
        out += &format!(
            "\n### {target}\n\n[flame graph]({file}.svg), trace `{file}.wct`. Doctor finds: {settings}.\n\n\
             ```\n{}\n```\n\n{hotspots}\n\nWhere it runs, first {MAX_TREE_LINES} lines of \
             `wcprof {TREE} {file}.wct`:\n\n```\n{}\n```\n",
            seen.headline,
            tree.join("\n")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lab::story::measure::{Seen, Share};
    use crate::lab::story::steps::{OSD, QEMU};

    /// Check that the table has a row a step with as many cells as its head, and marks findings.
    #[test]
    fn table() {
        let steps: Vec<(&Step, Measured)> = STEPS
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
                let seen = vec![(QEMU, seen), (OSD, Seen::default())];
                (step, Measured { iops: 1234.4, seen })
            })
            .collect();
        let text = report(&steps, 20, 199);
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
