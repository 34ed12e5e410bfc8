//! Trees to columns of numbers: a page holds the heaviest places, and how many it leaves out.

use indexmap::IndexSet;
use serde::Serialize;
use serde_json::{Value, json};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::short;
use wcprof_profile::{Group, Label};

use super::strings::Strings;

/// Trees of several groups, one after another. Times are in microseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct NodesOut {
    /// Index of the first node of each group, and the number of all nodes.
    pub(super) first: Vec<usize>,
    /// Depth of each node, root 0: a node comes before its descendants, heavier siblings first.
    pub(super) depth: Vec<usize>,
    /// Index into the labels.
    label: Vec<usize>,
    us: Vec<u64>,
    /// Time of paths that end here.
    own: Vec<u64>,
    samples: Vec<u64>,
    /// Ends of the 95 % interval; empty when there is none.
    low: Vec<u64>,
    high: Vec<u64>,
    /// The time by state: the number of the one state, or pairs of number and time.
    states: Vec<StatesOut>,
    /// Nodes left out, none of which is heavier than `limit_us`.
    pub(super) n_left_out: usize,
    pub(super) limit_us: u64,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum StatesOut {
    One(usize),
    Several(Vec<u64>),
}

/// What nodes stand for, each once: columns of names, short names and modules (indices into the strings; an
/// empty string for what is no function) and of kinds (`f` a function, `u` one without a name, `o` something
/// else).
pub(super) fn label_columns(
    labels: &IndexSet<Label>,
    profile: &Profile,
    min_percent: f64,
    strings: &mut Strings,
) -> Value {
    let (mut names, mut shorts) = (Vec::new(), Vec::new());
    let (mut modules, mut kinds) = (Vec::new(), String::new());
    for label in labels {
        let function = label.function(profile);
        let text = label.text(profile, min_percent);
        names.push(strings.id(&text));
        shorts.push(match function {
            Some(function) if function.source.is_none() => strings.id(&short(&function.name)),
            _ => strings.id(&text),
        });
        modules.push(strings.id(function.map_or("", |f| &f.module)));
        kinds.push(match function {
            Some(f) if f.resolved => 'f',
            Some(_) => 'u',
            None => 'o',
        });
    }
    json!({"name": names, "short": shorts, "module": modules, "kind": kinds})
}

/// The weight that a node must exceed for at most `max` nodes to remain.
fn limit(groups: &[&Group], max: usize) -> u64 {
    let nodes = groups.iter().flat_map(|g| &g.nodes);
    let mut weights: Vec<u64> = nodes.map(|n| n.weight).collect();
    if weights.len() <= max {
        return 0;
    }
    let (_, limit, _) = weights.select_nth_unstable_by(max, |a, b| b.cmp(a));
    *limit
}

/// The heaviest nodes of `groups`, at most `max`.
pub(super) fn columns(groups: &[&Group], max: usize, labels: &mut IndexSet<Label>) -> NodesOut {
    let limit = limit(groups, max);
    let mut out = NodesOut {
        limit_us: limit / 1000,
        ..NodesOut::default()
    };
    for group in groups {
        out.first.push(out.us.len());
        for (_, node, depth) in group.walk() {
            // A child weighs no more than its parent, so that no parent is missing.
            if node.weight <= limit {
                out.n_left_out += 1;
                continue;
            }
            out.depth.push(depth);
            out.label.push(labels.insert_full(node.label).0);
            out.us.push(micros(node.weight));
            out.own.push(micros(node.self_weight));
            out.samples.push(node.n_samples);
            if let Some(interval) = node.interval {
                out.low.push(micros(interval.low));
                out.high.push(micros(interval.high));
            }
            out.states.push(states(&node.states));
        }
    }
    out.first.push(out.us.len());
    out
}

fn states(weights: &[u64; State::ALL.len()]) -> StatesOut {
    let parts = || weights.iter().enumerate().filter(|(_, w)| **w > 0);
    if let (Some((state, _)), None) = (parts().next(), parts().nth(1)) {
        return StatesOut::One(state);
    }
    let pairs = parts().flat_map(|(state, w)| [state as u64, micros(*w)]);
    StatesOut::Several(pairs.collect())
}

/// Nanoseconds to microseconds.
pub(super) fn micros(ns: u64) -> u64 {
    ns.saturating_add(500) / 1000
}
