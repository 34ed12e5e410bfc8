//! Draws the tree that shows a finding, cut to a few lines.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use wcprof_profile::model::{FunctionId, Profile};
use wcprof_text::percent;

use crate::counted::Counted;
use crate::finding::{Evidence, EvidenceLine};
use crate::matching::{CompiledRule, stack};
use crate::rule::Show;

/// Lines of a tree: enough for two branches of a few frames.
const MAX_LINES: usize = 8;

/// Branches lighter than this share of the counted time are never worth a line.
const MIN_BRANCH_PERCENT: f64 = 5.0;

/// A frame one step deeper is this much less worth a line than its caller of the same weight:
/// a second branch of half the weight comes before the third frame of the first.
const DEPTH_DISCOUNT: f64 = 0.8;

/// Frames of one stack that take part in a tree; no more can come to print.
const MAX_DEPTH: usize = 2 * MAX_LINES;

/// The tree of `counted` in the order that the rule asks for; percentages are of `base_ns`,
/// which `of` names.
pub(crate) fn tree(
    profile: &Profile,
    rule: &CompiledRule<'_>,
    counted: &[Counted<'_>],
    base_ns: u64,
    of: &str,
) -> Evidence {
    // Node 0 is the root of the forest.
    let mut tree = Tree {
        nodes: vec![Node::default()],
        child_of: HashMap::new(),
    };
    for c in counted {
        tree.add(&path(profile, rule, c), c.row.weight);
    }
    let chosen = tree.choose();
    let mut lines = Vec::new();
    tree.print(0, &chosen, &mut |node| {
        let function = node.function.map(|f| &profile.functions[f.0 as usize]);
        let name = function.map_or("[no stack sampled]", |f| &f.name);
        lines.push(EvidenceLine {
            depth: node.depth - 1,
            module: function.map_or_else(String::new, |f| f.module.clone()),
            ..EvidenceLine::new(name.to_owned(), node.weight, base_ns)
        });
    });
    let nodes = tree.nodes.iter().skip(1);
    let n_heavy = nodes.filter(|node| tree.is_heavy(node)).count();
    Evidence {
        heading: format!("{}, % of {of}", order(rule.show())),
        n_cut: n_heavy.saturating_sub(lines.len()),
        lines,
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
fn path(profile: &Profile, rule: &CompiledRule<'_>, counted: &Counted<'_>) -> Vec<FunctionId> {
    let Some(stack) = stack(profile, counted.row) else {
        return Vec::new();
    };
    let frames = stack.frames.as_slice();
    let anchor = counted.anchor.map(|a| a as usize);
    match rule.show() {
        Show::Leaf | Show::Threads => frames.iter().rev().take(MAX_DEPTH).copied().collect(),
        Show::Callers => {
            let end = anchor.map_or(frames.len(), |a| a + 1);
            let callers = frames[..end].iter().rev();
            callers.take(MAX_DEPTH).copied().collect()
        }
        Show::Callees => {
            let callees = frames[anchor.unwrap_or(0)..].iter();
            callees.take(MAX_DEPTH).copied().collect()
        }
        Show::Sites => {
            let mut site = rule.site(frames);
            site.truncate(MAX_DEPTH);
            site
        }
    }
}

#[derive(Default)]
struct Node {
    weight: u64,
    /// 1 for a root of the tree.
    depth: usize,
    function: Option<FunctionId>,
    children: Vec<usize>,
}

struct Tree {
    nodes: Vec<Node>,
    child_of: HashMap<(usize, Option<FunctionId>), usize>,
}

impl Tree {
    fn add(&mut self, path: &[FunctionId], weight: u64) {
        let mut steps: Vec<Option<FunctionId>> = path.iter().copied().map(Some).collect();
        if steps.is_empty() {
            steps.push(None);
        }
        self.nodes[0].weight = self.nodes[0].weight.saturating_add(weight);
        let mut at = 0;
        for (depth, function) in (1..).zip(steps) {
            let next = self.nodes.len();
            let child = *self.child_of.entry((at, function)).or_insert(next);
            if child == next {
                self.nodes[at].children.push(child);
                self.nodes.push(Node {
                    depth,
                    function,
                    ..Node::default()
                });
            }
            let sum = &mut self.nodes[child].weight;
            *sum = sum.saturating_add(weight);
            at = child;
        }
    }

    fn is_heavy(&self, node: &Node) -> bool {
        percent(node.weight, self.nodes[0].weight) >= MIN_BRANCH_PERCENT
    }

    /// Whether each node is worth a line: the heaviest first, deeper ones discounted.
    fn choose(&self) -> Vec<bool> {
        let mut chosen = vec![false; self.nodes.len()];
        let mut heap = BinaryHeap::new();
        let mut at = 0;
        for _ in 0..MAX_LINES {
            for &child in &self.nodes[at].children {
                let node = &self.nodes[child];
                if self.is_heavy(node) {
                    let score = node.weight as f64 * DEPTH_DISCOUNT.powi(node.depth as i32);
                    // The node's number makes the order total: the earlier one wins a tie.
                    heap.push((score as u64, Reverse(child)));
                }
            }
            let Some((_, Reverse(heaviest))) = heap.pop() else {
                break;
            };
            chosen[heaviest] = true;
            at = heaviest;
        }
        // Thousands of light branches: the heaviest one is evidence all the same.
        if !chosen.contains(&true) {
            let roots = self.nodes[0].children.iter().copied();
            if let Some(heaviest) = roots.max_by_key(|&c| (self.nodes[c].weight, Reverse(c))) {
                chosen[heaviest] = true;
            }
        }
        chosen
    }

    /// Calls `line` with the chosen nodes below a node, each before its descendants.
    fn print(&self, at: usize, chosen: &[bool], line: &mut impl FnMut(&Node)) {
        let children = self.nodes[at].children.iter().copied();
        let mut children: Vec<usize> = children.filter(|&c| chosen[c]).collect();
        children.sort_by_key(|&c| (Reverse(self.nodes[c].weight), c));
        for child in children {
            line(&self.nodes[child]);
            self.print(child, chosen, line);
        }
    }
}
