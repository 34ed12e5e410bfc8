//! Draws the tree that shows a finding, cut to a few lines.

use std::cmp::Reverse;

use indexmap::IndexMap;
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
    let mut tree = Tree::default();
    for c in counted {
        tree.add(&path(profile, rule, c), c.row.weight);
    }
    let heavy = tree.heavy();
    let mut shown = heavy.clone();
    shown.truncate(MAX_LINES);
    let mut lines = Vec::new();
    tree.print(ROOT, &shown, &mut |function, node| {
        let function = function.map(|f| &profile.functions[f.0 as usize]);
        let name = function.map_or("[no stack sampled]", |f| &f.name);
        lines.push(EvidenceLine {
            depth: node.depth as usize - 1,
            module: function.map_or_else(String::new, |f| f.module.clone()),
            ..EvidenceLine::new(name.to_owned(), node.weight, base_ns)
        });
    });
    Evidence {
        heading: format!("{}, % of {of}", order(rule.show())),
        n_cut: heavy.len() - shown.len(),
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
    let mut path: Vec<FunctionId> = match rule.show() {
        Show::Leaf | Show::Threads => frames.iter().rev().copied().collect(),
        Show::Callers => {
            let end = anchor.map_or(frames.len(), |a| a + 1);
            frames[..end].iter().rev().copied().collect()
        }
        Show::Callees => frames[anchor.unwrap_or(0)..].to_vec(),
        Show::Sites => rule.site(frames),
    };
    path.truncate(MAX_DEPTH);
    path
}

#[derive(Default)]
struct Node {
    weight: u64,
    /// 1 for a root of the tree.
    depth: i32,
}

/// The parent of roots.
const ROOT: usize = usize::MAX;

#[derive(Default)]
struct Tree {
    /// By their parents' places here and their functions; a parent comes before its children.
    nodes: IndexMap<(usize, Option<FunctionId>), Node>,
    weight: u64,
}

impl Tree {
    fn add(&mut self, path: &[FunctionId], weight: u64) {
        let mut steps: Vec<Option<FunctionId>> = path.iter().copied().map(Some).collect();
        if steps.is_empty() {
            steps.push(None);
        }
        self.weight = self.weight.saturating_add(weight);
        let mut parent = ROOT;
        for (depth, function) in (1..).zip(steps) {
            let entry = self.nodes.entry((parent, function));
            parent = entry.index();
            let node = entry.or_insert(Node { weight: 0, depth });
            node.weight = node.weight.saturating_add(weight);
        }
    }

    /// The nodes that are worth a line, those most worth it first: heavy ones, deep ones discounted. None
    /// comes before its parent.
    fn heavy(&self) -> Vec<usize> {
        let nodes = || self.nodes.values().enumerate();
        let heavy = nodes().filter(|(_, n)| percent(n.weight, self.weight) >= MIN_BRANCH_PERCENT);
        let mut heavy: Vec<(usize, &Node)> = heavy.collect();
        if heavy.is_empty() {
            // Thousands of light branches: the heaviest one is evidence all the same.
            heavy.extend(nodes().max_by_key(|(at, n)| (n.weight, Reverse((n.depth, *at)))));
        }
        let score = |node: &Node| (node.weight as f64 * DEPTH_DISCOUNT.powi(node.depth)) as u64;
        heavy.sort_by_key(|(_, node)| Reverse(score(node)));
        heavy.into_iter().map(|(at, _)| at).collect()
    }

    /// Calls `line` with those of the nodes below a node that are shown, each before its descendants.
    fn print(
        &self,
        parent: usize,
        shown: &[usize],
        line: &mut impl FnMut(Option<FunctionId>, &Node),
    ) {
        let nodes = shown.iter().filter_map(|&at| {
            let (key, node) = self.nodes.get_index(at)?;
            (key.0 == parent).then_some((at, key.1, node))
        });
        let mut children: Vec<_> = nodes.collect();
        children.sort_by_key(|&(at, _, node)| (Reverse(node.weight), at));
        for (at, function, node) in children {
            line(function, node);
            self.print(at, shown, line);
        }
    }
}
