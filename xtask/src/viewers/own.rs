//! JSON reports to the times that viewers must show.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;
use serde_json::Value;

use crate::process::{list, number, text};

/// Functions of the trace with known lines, and their source files.
pub(super) const LISTED: &[(&str, &str)] = &[
    ("__futex_abstimed_wait_common64", "./nptl/futex-internal.c"),
    ("start_thread", "./nptl/pthread_create.c"),
];

/// Self time by function, ns, as the JSON report has it: the roots of inverted trees.
#[derive(Debug, Default)]
pub(crate) struct OwnTimes {
    /// By thread (`comm/tid`), most time first.
    pub(super) threads: Vec<(String, BTreeMap<String, f64>)>,
}

impl OwnTimes {
    pub(super) fn read(path: &Path) -> Result<Self> {
        Self::of_report(&serde_json::from_reader(fs::File::open(path)?)?)
    }

    pub(crate) fn of_report(report: &Value) -> Result<Self> {
        let mut threads = Vec::new();
        for group in list(&report["groups"]) {
            let roots =
                list(&group["nodes"]).filter(|node| node.get("parent") == Some(&Value::Null));
            let times = sums(roots, "weight_ns");
            if !times.is_empty() {
                threads.push((text(&group["name"]).to_owned(), times));
            }
        }
        ensure!(!threads.is_empty(), "the trace shows no time");
        Ok(Self { threads })
    }

    /// Of all threads, by name up to arguments and template arguments.
    pub(crate) fn by_short_name(&self) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (name, ns) in self.threads.iter().flat_map(|(_, times)| times) {
            *sums.entry(short(name).to_owned()).or_default() += ns;
        }
        sums
    }

    /// Of functions with this name up to arguments and template arguments, in all threads.
    pub(super) fn of_function(&self, name: &str) -> f64 {
        let times = self.threads.iter().flat_map(|(_, times)| times);
        let same = times.filter(|(own, _)| short(own) == short(name));
        same.map(|(_, ns)| ns).sum()
    }
}

/// The nodes of a JSON report, root first, by group.
#[derive(Debug)]
pub(super) struct Tree(pub(super) Vec<Vec<Value>>);

impl Tree {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let report: Value = serde_json::from_reader(fs::File::open(path)?)?;
        let groups = list(&report["groups"]);
        Ok(Self(
            groups
                .map(|g| list(&g["nodes"]).cloned().collect())
                .collect(),
        ))
    }

    /// Time of the stacks with a wanted node, ns.
    pub(super) fn of(&self, is_wanted: impl Fn(&Value) -> bool) -> f64 {
        self.0.iter().map(|nodes| time_of(nodes, &is_wanted)).sum()
    }

    /// Time of a thread at a line of a file, ns, of a report with lines by thread.
    pub(super) fn of_line(&self, thread: usize, file: &str, line: &str) -> f64 {
        let file = file.rsplit('/').next().unwrap_or_default();
        let place = format!(" ({file}:{line})");
        time_of(&self.0[thread], |node| {
            text(&node["name"]).ends_with(&place)
        })
    }
}

fn time_of(nodes: &[Value], is_wanted: impl Fn(&Value) -> bool) -> f64 {
    let mut sum = 0.0;
    // By node: whether it or one above it is wanted.
    let mut found: Vec<bool> = Vec::new();
    for node in nodes {
        let parent = node["parent"].as_u64();
        let is_below = parent.is_some_and(|parent| found[parent as usize]);
        let is_first = !is_below && is_wanted(node);
        sum += if is_first {
            number(&node["weight_ns"])
        } else {
            0.0
        };
        found.push(is_below || is_first);
    }
    sum
}

/// The sum of the numbers under `key` for each name.
pub(super) fn sums<'a>(
    values: impl Iterator<Item = &'a Value>,
    key: &str,
) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for value in values {
        *sums.entry(text(&value["name"]).to_owned()).or_default() += number(&value[key]);
    }
    sums
}

/// A name up to its arguments or templates, which viewers shorten.
pub(crate) fn short(name: &str) -> &str {
    name.split(['(', '<']).next().unwrap_or(name).trim()
}
