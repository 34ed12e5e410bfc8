//! The text tree: percent of wall-clock time, time, and the functions.
//!
//! `±` is half the width of the 95 % confidence interval, in points.
//!
//! Percentages are of the group's observed time, idle time included, so that a thread that is
//! nearly always idle does not look busy. Callees of a single callee stay in its column: only
//! branches indent.

use std::cmp::Reverse;
use std::io::{self, Write};

use rayon::prelude::*;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Group, Interval, Label, Node, Trees};
use wcprof_text::{columns, count, cut, duration, percent, terminal_name};

use crate::group::group_name;

/// How to print.
#[derive(Copy, Clone, Debug, Default)]
pub struct TextOptions {
    /// Cut lines to so many characters; `None` does not cut.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
    /// Most nodes a group; the heaviest, nearest to the tree's roots, are shown, and `...` follows
    /// those that have others below them, none of which is. `None` for all.
    pub max_nodes: Option<usize>,
    /// Count groups without any time to show, and do not list them.
    pub only_shown: bool,
}

/// Writes the trees as text.
pub fn text(
    profile: &Profile,
    trees: &Trees,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let groups = trees.groups.iter();
    let (listed, empty): (Vec<_>, Vec<_>) =
        groups.partition(|group| !options.only_shown || group.weight > 0);
    let texts = listed.par_iter().map(|group| {
        let mut text = Vec::new();
        write_group(profile, trees, group, options, &mut text).map(|()| text)
    });
    let texts: io::Result<Vec<Vec<u8>>> = texts.collect();
    out.write_all(&texts?.join(&b'\n'))?;
    write_n_empty(listed.len(), empty.len(), out)
}

/// How many groups are not listed.
pub(crate) fn write_n_empty(
    n_listed: usize,
    n_empty: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    match (n_listed, n_empty) {
        // Where no group is listed there is nothing to say here.
        (0, _) | (_, 0) => Ok(()),
        (_, 1) => writeln!(out, "\n1 other has no time that passes the filters"),
        (_, n) => writeln!(out, "\n{n} others have no time that passes the filters"),
    }
}

/// Writes one group: its header and its tree.
pub(crate) fn write_group(
    profile: &Profile,
    trees: &Trees,
    group: &Group,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let line = header(profile, group);
    let line = cut(&line, options.width);
    match options.color {
        true => writeln!(out, "\x1b[1m{line}\x1b[0m")?,
        false => writeln!(out, "{line}")?,
    }
    let shown = options.max_nodes.map(|max| heaviest(group, max));
    let is_shown = |node: &usize| shown.as_ref().is_none_or(|shown| shown[*node]);
    let visible = |list: &[usize]| list.iter().copied().filter(is_shown).collect::<Vec<_>>();
    // Nodes to print, last first: the node, its lead, the lead of its descendants.
    let mut next: Vec<(usize, String, String)> = Vec::new();
    branch(&visible(&group.roots), group.roots.len(), "", &mut next);
    while let Some((at, lead, below)) = next.pop() {
        let node = &group.nodes[at];
        let children = visible(&node.children);
        // What is below it had no room.
        let is_cut = children.is_empty() && !node.children.is_empty();
        let name = node.label.text(profile, trees.min_percent);
        let name = format!("{lead}{}", terminal_name(&name));
        write_node(group, node, &name, is_cut, options, out)?;
        branch(&children, node.children.len(), &below, &mut next);
    }
    Ok(())
}

/// Adds siblings to the nodes to print. Of `n_all` siblings those in `shown` are printed; one that
/// never had any stays in its parent's column.
fn branch(shown: &[usize], n_all: usize, below: &str, next: &mut Vec<(usize, String, String)>) {
    for (i, &node) in shown.iter().enumerate().rev() {
        next.push(if n_all == 1 {
            (node, below.to_owned(), below.to_owned())
        } else if i + 1 == shown.len() {
            (node, format!("{below}└─"), format!("{below}  "))
        } else {
            (node, format!("{below}├─"), format!("{below}│ "))
        });
    }
}

fn header(profile: &Profile, group: &Group) -> String {
    let name = group_name(profile, group).unwrap_or_else(|| "all threads".to_owned());
    let observed = group.observed();
    let states = group.states.into_iter().zip(State::ALL);
    let mut states: Vec<(u64, State)> = states.filter(|(weight, _)| *weight > 0).collect();
    states.sort_by_key(|(weight, _)| Reverse(*weight));
    let states = states.into_iter();
    let states = states.map(|(ns, s)| format!("{} {:.1} %", s.name(), percent(ns, observed)));
    let states: Vec<String> = states.collect();
    format!(
        "{}: {}, {} observed, {} shown ({})",
        terminal_name(&name),
        count(group.threads.len(), "thread"),
        duration(observed),
        duration(group.weight),
        states.join(", "),
    )
}

/// A line: figures, the tree with its name, the state.
fn write_node(
    group: &Group,
    node: &Node,
    tree: &str,
    is_cut: bool,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let share = percent(node.weight, group.observed());
    let sure = plus_minus(node.interval, group.observed());
    let figures = format!("{share:6.2}% {sure:<6} {:>8}", duration(node.weight));
    let mark = if is_cut { " ..." } else { "" };
    let state = annotation(group, node).map_or_else(String::new, |s| format!(" {}", s.frame()));
    let taken = columns(&figures) + 2 + mark.len() + state.len();
    let tree = cut(tree, options.width.map(|w| w.saturating_sub(taken)));
    let color = match share {
        _ if !options.color => "",
        20.0.. => "\x1b[1;31m",
        5.0.. => "\x1b[33m",
        _ => "",
    };
    let reset = if color.is_empty() { "" } else { "\x1b[0m" };
    let state = match options.color && !state.is_empty() {
        true => format!("\x1b[2m{state}\x1b[0m"),
        false => state,
    };
    writeln!(out, "{color}{figures}{reset}  {tree}{mark}{state}")
}

/// Half the width of an interval in percent of `whole`: `±0.31`; empty when it is not known.
pub(crate) fn plus_minus(interval: Option<Interval>, whole: u64) -> String {
    let half = interval.map(|i| percent(i.high.saturating_sub(i.low), whole) / 2.0);
    match half {
        None => String::new(),
        Some(half) if half < 9.995 => format!("±{half:.2}"),
        Some(half) => format!("±{half:.1}"),
    }
}

/// The state to print at a node: where all its time is in one state and its parent's is not.
fn annotation(group: &Group, node: &Node) -> Option<State> {
    if matches!(node.label, Label::State(_) | Label::NotSampled(_)) {
        return None;
    }
    let state = single_state(node)?;
    let parent = node.parent.map(|p| &group.nodes[p]);
    let is_said = parent.is_some_and(|parent| {
        matches!(parent.label, Label::State(_)) || single_state(parent) == Some(state)
    });
    (!is_said).then_some(state)
}

fn single_state(node: &Node) -> Option<State> {
    State::ALL
        .into_iter()
        .find(|s| node.weight > 0 && node.states[*s as usize] == node.weight)
}

/// Marks the `max` nodes to show: heavy ones, and those near the roots rather than deep ones.
fn heaviest(group: &Group, max: usize) -> Vec<bool> {
    let score = |(at, node, depth): (usize, &Node, usize)| {
        let discount = 0.85_f64.powi(depth.min(1000) as i32);
        (node.weight as f64 * discount, at)
    };
    let mut order: Vec<(f64, usize)> = group.walk().map(score).collect();
    // A child's score is below its parent's, so that no shown node lacks its parent.
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut shown = vec![false; group.nodes.len()];
    for (_, at) in order.into_iter().take(max) {
        shown[at] = true;
    }
    shown
}
