//! Draws the tree that shows a finding, cut to a few lines.

use std::collections::{BinaryHeap, HashMap};

use wcprof_profile::model::{FunctionId, Profile, Row};

use crate::finding::{Evidence, EvidenceLine};
use crate::matching::{CompiledRule, stack};
use crate::rule::Show;
use crate::totals::percent;

/// Lines of a tree: enough for two branches of a few frames.
pub(crate) const MAX_LINES: usize = 8;

/// Branches lighter than this share of the counted time are never worth a line.
const MIN_BRANCH_PERCENT: f64 = 5.0;

/// A frame one step deeper is this much less worth a line than its caller of the same weight:
/// a second branch of half the weight comes before the third frame of the first.
const DEPTH_DISCOUNT: f64 = 0.8;

/// Frames of one stack that take part in a tree; no more can come to print.
const MAX_DEPTH: usize = 2 * MAX_LINES;

/// Time that a rule counted.
pub(crate) struct Counted<'p> {
    pub(crate) row: &'p Row,
    /// Root-most matched frame, counted from the root.
    pub(crate) anchor: Option<u32>,
}

#[derive(Default)]
struct Node {
    weight: u64,
    children: HashMap<Option<FunctionId>, usize>,
    depth: usize,
    function: Option<FunctionId>,
}

/// The tree of `counted` in the order that the rule asks for; percentages are of `base_ns`,
/// which `of` names.
pub(crate) fn tree(
    profile: &Profile,
    rule: &CompiledRule<'_>,
    show: Show,
    counted: &[Counted<'_>],
    base_ns: u64,
    of: &str,
) -> Evidence {
    // Node 0 is the root of the forest.
    let mut nodes = vec![Node::default()];
    for c in counted {
        add(&mut nodes, &path(profile, rule, show, c), c.row.weight);
    }
    let total = nodes.first().map_or(0, |n| n.weight);
    let chosen = choose(&nodes, total);
    let mut lines = Vec::new();
    print(profile, &nodes, &chosen, 0, base_ns, &mut lines);
    let n_cut = nodes
        .iter()
        .skip(1)
        .filter(|n| percent(n.weight, total) >= MIN_BRANCH_PERCENT)
        .count()
        .saturating_sub(lines.len());
    Evidence {
        heading: format!("{}, % of {of}", order(show)),
        lines,
        n_cut,
    }
}

fn order(show: Show) -> &'static str {
    match show {
        Show::Leaf | Show::Threads => "leaf first",
        Show::Callers => "the matched function, then its callers",
        Show::Callees => "the matched function, then what it called",
        Show::Sites => "the lock site, then its callers",
    }
}

/// The frames of one line of descent; empty when no stack was sampled.
fn path(
    profile: &Profile,
    rule: &CompiledRule<'_>,
    show: Show,
    counted: &Counted<'_>,
) -> Vec<FunctionId> {
    let Some(stack) = stack(profile, counted.row) else {
        return Vec::new();
    };
    let frames = stack.frames.as_slice();
    let anchor = counted.anchor.map(|a| a as usize);
    match show {
        Show::Leaf | Show::Threads => frames.iter().rev().take(MAX_DEPTH).copied().collect(),
        Show::Callers => {
            let end = anchor.map_or(frames.len(), |a| a.saturating_add(1));
            let callers = frames.get(..end).unwrap_or(frames);
            callers.iter().rev().take(MAX_DEPTH).copied().collect()
        }
        Show::Callees => {
            let callees = frames.get(anchor.unwrap_or(0)..).unwrap_or(frames);
            callees.iter().take(MAX_DEPTH).copied().collect()
        }
        Show::Sites => {
            let above = frames.iter().rev().skip_while(|&&f| rule.skips(f));
            let site: Vec<_> = above.take(MAX_DEPTH).copied().collect();
            if site.is_empty() {
                // Lock functions all the way: the root-most one is all that is known.
                frames.first().copied().into_iter().collect()
            } else {
                site
            }
        }
    }
}

fn add(nodes: &mut Vec<Node>, path: &[FunctionId], weight: u64) {
    let no_stack = [None];
    let steps: Vec<Option<FunctionId>> = match path {
        [] => no_stack.to_vec(),
        path => path.iter().copied().map(Some).collect(),
    };
    let mut at = 0;
    if let Some(root) = nodes.first_mut() {
        root.weight = root.weight.saturating_add(weight);
    }
    for step in steps {
        let next = nodes.len();
        let Some(node) = nodes.get_mut(at) else {
            return;
        };
        let depth = node.depth + 1;
        let child = *node.children.entry(step).or_insert(next);
        if child == next {
            nodes.push(Node {
                depth,
                function: step,
                ..Node::default()
            });
        }
        if let Some(child) = nodes.get_mut(child) {
            child.weight = child.weight.saturating_add(weight);
        }
        at = child;
    }
}

/// The nodes worth a line, by index. The heaviest first, deeper ones discounted.
fn choose(nodes: &[Node], total: u64) -> Vec<bool> {
    let mut chosen = vec![false; nodes.len()];
    let mut heap = BinaryHeap::new();
    let offer = |heap: &mut BinaryHeap<_>, node: &Node| {
        for &child in node.children.values() {
            let Some(n) = nodes.get(child) else { continue };
            if percent(n.weight, total) >= MIN_BRANCH_PERCENT {
                let depth = i32::try_from(n.depth).unwrap_or(i32::MAX);
                let score = n.weight as f64 * DEPTH_DISCOUNT.powi(depth);
                // The node's number makes the order total: the earlier one wins a tie.
                heap.push((score as u64, std::cmp::Reverse(child)));
            }
        }
    };
    let Some(root) = nodes.first() else {
        return chosen;
    };
    offer(&mut heap, root);
    for _ in 0..MAX_LINES {
        let Some((_, std::cmp::Reverse(i))) = heap.pop() else {
            break;
        };
        if let (Some(flag), Some(node)) = (chosen.get_mut(i), nodes.get(i)) {
            *flag = true;
            offer(&mut heap, node);
        }
    }
    // Thousands of light branches: the heaviest one is evidence all the same.
    if heap.is_empty() && !chosen.contains(&true) {
        let heaviest = root
            .children
            .values()
            .copied()
            .max_by_key(|&c| (nodes.get(c).map(|n| n.weight), std::cmp::Reverse(c)));
        if let Some(flag) = heaviest.and_then(|c| chosen.get_mut(c)) {
            *flag = true;
        }
    }
    chosen
}

fn print(
    profile: &Profile,
    nodes: &[Node],
    chosen: &[bool],
    at: usize,
    base_ns: u64,
    lines: &mut Vec<EvidenceLine>,
) {
    let Some(node) = nodes.get(at) else { return };
    if at != 0 {
        let function = node
            .function
            .and_then(|f| profile.functions.get(f.0 as usize));
        lines.push(EvidenceLine {
            depth: node.depth.saturating_sub(1),
            percent: percent(node.weight, base_ns),
            weight_ns: node.weight,
            name: function.map_or("[no stack sampled]".into(), |f| f.name.clone()),
            module: function.map_or(String::new(), |f| f.module.clone()),
        });
    }
    let mut children: Vec<usize> = node.children.values().copied().collect();
    children.sort_by_key(|&c| (std::cmp::Reverse(nodes.get(c).map(|n| n.weight)), c));
    for child in children {
        if chosen.get(child).copied().unwrap_or(false) {
            print(profile, nodes, chosen, child, base_ns, lines);
        }
    }
}
