//! The report of a recording against the one stack that the program has.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::{list, number, text};

/// Functions of the program, outermost first; each is called by the one before it.
const OUTER: &str = "outer_step";
const INLINED: &str = "middle_step";
const LEAF: &str = "leaf_";
/// Its source files.
const SOURCE: &str = "answer.";

/// Time in which a stack was what it is.
#[derive(Default, Debug)]
pub(super) struct Score {
    all: f64,
    whole: f64,
    cut: f64,
    named: f64,
    inlined: f64,
    lines: f64,
    /// Time with a stack that reaches its root, where `leaf_spin` or `leaf_wait` has other callers, by stack.
    wrong: BTreeMap<String, f64>,
    /// What the first screen says of stacks that end early, %.
    said: Option<f64>,
}

impl Score {
    /// `report` is by thread, with lines.
    pub(super) fn new(report: &Value, screen: &str) -> Self {
        let mut own = Self {
            said: said_cut(screen),
            ..Self::default()
        };
        let groups: Vec<Vec<&Value>> = list(&report["groups"])
            .map(|group| list(&group["nodes"]).collect())
            .collect();
        // Beside it a runtime may have threads of its own.
        let is_of_program = |nodes: &[&Value]| {
            let mut names = nodes.iter().map(|node| text(&node["name"]));
            names.any(|name| name.contains(OUTER) || name.contains(LEAF))
        };
        let has_names = groups.iter().any(|nodes| is_of_program(nodes));
        for nodes in groups {
            if is_of_program(&nodes) || !has_names {
                own.add(&nodes);
            }
        }
        own
    }

    fn add(&mut self, nodes: &[&Value]) {
        let path_of = |mut at: usize| {
            let mut path = vec![nodes[at]];
            while let Some(parent) = nodes[at]["parent"]
                .as_u64()
                .and_then(|p| usize::try_from(p).ok())
            {
                at = parent;
                path.push(nodes[at]);
            }
            path.reverse();
            path
        };
        for (at, node) in nodes.iter().enumerate() {
            let weight = number(&node["self_ns"]);
            if weight > 0.0 {
                self.add_stack(&path_of(at), weight);
            }
        }
    }

    /// A stack, outermost function first.
    fn add_stack(&mut self, path: &[&Value], weight: f64) {
        if path
            .first()
            .is_some_and(|root| text(&root["kind"]) == "not-sampled")
        {
            return;
        }
        self.all += weight;
        let functions = path.iter().filter(|node| text(&node["kind"]) == "function");
        let functions: Vec<&str> = functions.map(|node| text(&node["name"])).collect();
        let position = |part: &str| functions.iter().position(|name| plain(name).contains(part));
        let is_cut = functions.len() < path.len();
        let is_right = match (position(OUTER), position(LEAF)) {
            (Some(outer), Some(leaf)) => outer < leaf,
            (None, Some(_)) => false,
            // Elsewhere in the program, or without names.
            (_, None) => true,
        };
        if !is_cut && !is_right {
            *self.wrong.entry(functions.join(";")).or_default() += weight;
        }
        let has_line = |name: &&str| name.contains(OUTER) && name.contains(SOURCE);
        for (sum, is) in [
            (&mut self.cut, is_cut),
            (&mut self.whole, !is_cut && is_right),
            (&mut self.named, position(OUTER).is_some()),
            (&mut self.inlined, position(INLINED).is_some()),
            (&mut self.lines, functions.iter().any(has_line)),
        ] {
            *sum += if is { weight } else { 0.0 };
        }
    }

    fn share(&self, part: f64) -> String {
        match self.all > 0.0 {
            true => format!("{:.1} %", 100.0 * part / self.all),
            false => "-".to_owned(),
        }
    }

    pub(super) fn stacks(&self) -> String {
        let wrong = self.wrong.values().fold(0.0, |sum, ns| sum + ns);
        [self.whole, self.cut, wrong]
            .map(|part| self.share(part))
            .join(" / ")
    }

    pub(super) fn said(&self) -> String {
        self.said
            .map_or_else(|| "nothing".to_owned(), |said| format!("{said:.1} %"))
    }

    pub(super) fn names(&self) -> String {
        self.share(self.named)
    }

    pub(super) fn inlines(&self) -> String {
        self.share(self.inlined)
    }

    pub(super) fn lines(&self) -> String {
        self.share(self.lines)
    }

    /// Stacks that are wrong.
    pub(super) fn details(&self) -> Vec<String> {
        let wrong = self.wrong.iter();
        wrong
            .map(|(stack, ns)| format!("wrong: {} {stack}", self.share(*ns)))
            .collect()
    }
}

/// The sum of what the first screen says of stacks that end early, by reason: `12.3 % truncated (no unwind info)`.
fn said_cut(screen: &str) -> Option<f64> {
    let mut sum = None;
    let mut rest = screen;
    while let Some((before, after)) = rest.split_once(" % truncated") {
        let share: Option<f64> = before
            .rsplit([' ', '\n'])
            .next()
            .and_then(|n| n.parse().ok());
        sum = share.map(|share| sum.unwrap_or(0.0) + share).or(sum);
        rest = after;
    }
    sum
}

/// How many functions a witness has of the program's thread, and which of the chain; of any thread where it has no names.
pub(super) fn of_witness<'s>(stacks: impl Iterator<Item = &'s Vec<String>>) -> Option<String> {
    let is_named = |name: &String| name.contains(OUTER) || name.contains(LEAF);
    let n_named = |stack: &&Vec<String>| stack.iter().filter(|name| is_named(name)).count();
    let stack = stacks.max_by_key(|stack| (n_named(stack), stack.len()))?;
    let has = |part: &&str| stack.iter().any(|name| name.contains(part));
    let known: Vec<&str> = [OUTER, INLINED, LEAF].into_iter().filter(has).collect();
    let known = match known.is_empty() {
        true => "no names".to_owned(),
        false => known.join(", "),
    };
    (!stack.is_empty()).then(|| format!("{} frames; {known}", stack.len()))
}

/// A name without its line.
fn plain(name: &str) -> &str {
    name.split(" (").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, parent: Option<u64>, own: u64) -> Value {
        let kind = if name.starts_with('[') {
            "end"
        } else {
            "function"
        };
        json!({"kind": kind, "name": name, "resolved": !name.contains("+0x"), "parent": parent, "self_ns": own})
    }

    /// Check a whole stack with and without an inline function, a cut one, a wrong one, and one without names.
    #[test]
    fn scores() {
        let nodes = [
            node("main (answer.c:50)", None, 0),
            node("outer_step (answer.c:44)", Some(0), 0),
            node("middle_step (answer.c:36)", Some(1), 0),
            node("leaf_spin (answer.c:20)", Some(2), 40),
            node("leaf_wait", Some(1), 20),
            node("[truncated: no unwind info]", None, 0),
            node("leaf_wait", Some(5), 20),
            node("leaf_wait", Some(0), 10),
            node("answer+0x7", None, 10),
        ];
        let report = json!({"groups": [{"nodes": nodes}]});
        let score = Score::new(
            &report,
            "quality look: 12.5 % truncated (no unwind info), 7.5 % truncated (x)",
        );
        assert_eq!(score.stacks(), "70.0 % / 20.0 % / 10.0 %");
        assert_eq!(score.said(), "20.0 %");
        assert_eq!(
            (score.names(), score.inlines(), score.lines()),
            ("60.0 %".into(), "40.0 %".into(), "60.0 %".into())
        );
        assert_eq!(
            score.details(),
            ["wrong: 10.0 % main (answer.c:50);leaf_wait"]
        );
        let stack = ["leaf_wait", "outer_step", "main"]
            .map(str::to_owned)
            .to_vec();
        let other = vec![String::new(); 5];
        assert_eq!(
            of_witness([&stack, &other].into_iter()),
            Some("3 frames; outer_step, leaf_".to_owned())
        );
    }
}
