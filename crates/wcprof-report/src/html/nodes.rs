//! Trees to columns of numbers: a page holds the heaviest places, and how many it leaves out.

use serde::Serialize;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Group, Label, Node, Trees};

use super::strings::Strings;

/// Trees of several groups, one after another. Times are in microseconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct NodesOut {
    /// Index of the first node of each group, and the number of all nodes.
    pub(super) first: Vec<usize>,
    /// Depth of each node, root 0: a node comes before its descendants, heavier siblings first.
    pub(super) depth: Vec<usize>,
    /// Index into the labels.
    label: Vec<u32>,
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

/// What nodes stand for, each once.
#[derive(Debug, Default, Serialize)]
pub(super) struct Labels {
    /// Index of the text in the strings.
    name: Vec<u32>,
    /// Index of the module's name; of an empty string for what is no function.
    module: Vec<u32>,
    /// `f` a function, `u` one without a name, `o` something else.
    kind: String,
    #[serde(skip)]
    ids: std::collections::HashMap<Label, u32>,
}

impl Labels {
    fn id(
        &mut self,
        label: Label,
        profile: &Profile,
        min_percent: f64,
        strings: &mut Strings,
    ) -> u32 {
        if let Some(&id) = self.ids.get(&label) {
            return id;
        }
        let function = match label {
            Label::Function(id) => profile.functions.get(id.0 as usize),
            _ => None,
        };
        let id = u32::try_from(self.name.len()).unwrap_or(u32::MAX);
        self.name
            .push(strings.id(&label.text(profile, min_percent)));
        self.module
            .push(strings.id(function.map_or("", |f| f.module.as_str())));
        self.kind.push(match function {
            Some(f) if f.resolved => 'f',
            Some(_) => 'u',
            None => 'o',
        });
        self.ids.insert(label, id);
        id
    }
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
pub(super) fn columns(
    profile: &Profile,
    trees: &Trees,
    groups: &[&Group],
    max: usize,
    labels: &mut Labels,
    strings: &mut Strings,
) -> NodesOut {
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
            let label = labels.id(node.label, profile, trees.min_percent, strings);
            out.push(node, label, depth);
        }
    }
    out.first.push(out.us.len());
    out
}

impl NodesOut {
    fn push(&mut self, node: &Node, label: u32, depth: usize) {
        self.depth.push(depth);
        self.label.push(label);
        self.us.push(micros(node.weight));
        self.own.push(micros(node.self_weight));
        self.samples.push(node.n_samples);
        if let Some(interval) = node.interval {
            self.low.push(micros(interval.low));
            self.high.push(micros(interval.high));
        }
        self.states.push(states(&node.states));
    }
}

fn states(weights: &[u64; State::ALL.len()]) -> StatesOut {
    let parts = || weights.iter().enumerate().filter(|(_, w)| **w > 0);
    match (parts().next(), parts().nth(1)) {
        (Some((state, _)), None) => StatesOut::One(state),
        _ => StatesOut::Several(
            parts()
                .flat_map(|(state, w)| [state as u64, micros(*w)])
                .collect(),
        ),
    }
}

/// Nanoseconds to microseconds.
pub(super) fn micros(ns: u64) -> u64 {
    ns.saturating_add(500) / 1000
}
