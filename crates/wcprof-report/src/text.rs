//! The text tree: percent of wall-clock time, time, and the functions.
//!
//! `±` is half the width of the 95 % confidence interval, in points.
//!
//! Percentages are of the group's observed time, idle time included, so that a thread that is
//! nearly always idle does not look busy. Callees of a single callee stay in its column: only
//! branches indent.

use std::io::{self, Write};
use std::panic::resume_unwind;
use std::thread;

use wcprof_findings::{columns, cut};
use wcprof_profile::model::{Profile, State};
use wcprof_profile::{Group, Label, Node, Trees, half};

use crate::escape::terminal_name;
use crate::group::group_name;
use crate::units::{count, duration, percent, plus_minus};

/// From so many nodes on two threads write half of them each.
const MANY_NODES: usize = 20_000;

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
    let (listed, empty): (Vec<_>, Vec<_>) = trees
        .groups
        .iter()
        .partition(|group| !options.only_shown || group.weight > 0);
    let n_nodes: Vec<usize> = listed.iter().map(|group| group.nodes.len()).collect();
    if n_nodes.iter().sum::<usize>() < MANY_NODES {
        write_groups(profile, trees, &listed, options, out)?;
        return say_left_out(listed.len(), empty.len(), out);
    }
    let (first, second) = listed.split_at(half(&n_nodes));
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let mut bytes = Vec::new();
            write_groups(profile, trees, second, options, &mut bytes).map(|()| bytes)
        });
        write_groups(profile, trees, first, options, out)?;
        let bytes = second.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        if !bytes.is_empty() {
            writeln!(out)?;
        }
        out.write_all(&bytes)
    })?;
    say_left_out(listed.len(), empty.len(), out)
}

fn write_groups(
    profile: &Profile,
    trees: &Trees,
    groups: &[&Group],
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    for (at, group) in groups.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write_group(profile, trees, group, options, out)?;
    }
    Ok(())
}

/// How many groups are not listed.
pub(crate) fn say_left_out(
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
    if options.color {
        writeln!(out, "\x1b[1m{line}\x1b[0m")?;
    } else {
        writeln!(out, "{line}")?;
    }
    let shown = options.max_nodes.map(|max| heaviest(group, max));
    let visible = |list: &[usize]| -> Vec<usize> {
        list.iter()
            .copied()
            .filter(|&n| shown.as_ref().is_none_or(|s| s.get(n) == Some(&true)))
            .collect()
    };
    // Nodes to print, last first: the node, its lead, the lead of its descendants.
    let mut next: Vec<(usize, String, String)> = Vec::new();
    branch(&visible(&group.roots), group.roots.len(), "", &mut next);
    while let Some((at, lead, below)) = next.pop() {
        let Some(node) = group.nodes.get(at) else {
            continue;
        };
        let children = visible(&node.children);
        // What is below it had no room.
        let goes_on = children.is_empty() && !node.children.is_empty();
        let mark = if goes_on { " ..." } else { "" };
        write_node(profile, trees, group, node, (&lead, mark), options, out)?;
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
    let mut states: Vec<State> = State::ALL
        .into_iter()
        .filter(|s| group.states[*s as usize] > 0)
        .collect();
    states.sort_by_key(|s| std::cmp::Reverse(group.states[*s as usize]));
    let states: Vec<String> = states
        .into_iter()
        .map(|s| {
            let share = percent(group.states[s as usize], observed);
            format!("{} {share:.1} %", s.name())
        })
        .collect();
    format!(
        "{}: {}, {} observed, {} shown ({})",
        terminal_name(&name),
        count(group.threads.len() as u64, "thread"),
        duration(observed),
        duration(group.weight),
        states.join(", "),
    )
}

fn write_node(
    profile: &Profile,
    trees: &Trees,
    group: &Group,
    node: &Node,
    (lead, mark): (&str, &str),
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let share = percent(node.weight, group.observed());
    let name = node.label.text(profile, trees.min_percent);
    let sure = plus_minus(node.interval, group.observed());
    let figures = format!("{share:6.2}% {sure:<6} {:>8}", duration(node.weight));
    let state = annotation(group, node).map_or_else(String::new, |s| format!(" {}", s.frame()));
    let width = options
        .width
        .map(|w| w.saturating_sub(columns(&figures) + 2 + mark.len() + state.len()));
    let tree = format!("{lead}{}", terminal_name(&name));
    let tree = format!("{}{mark}", cut(&tree, width));
    if options.color {
        let color = match share {
            s if s >= 20.0 => "\x1b[1;31m",
            s if s >= 5.0 => "\x1b[33m",
            _ => "",
        };
        let reset = if color.is_empty() { "" } else { "\x1b[0m" };
        let state = match state.as_str() {
            "" => String::new(),
            s => format!("\x1b[2m{s}\x1b[0m"),
        };
        writeln!(out, "{color}{figures}{reset}  {tree}{state}")
    } else {
        writeln!(out, "{figures}  {tree}{state}")
    }
}

/// The state to print at a node: where all its time is in one state and its parent's is not.
fn annotation(group: &Group, node: &Node) -> Option<State> {
    if matches!(node.label, Label::State(_) | Label::NotSampled(_)) {
        return None;
    }
    let state = single_state(node)?;
    let parent = node.parent.and_then(|p| group.nodes.get(p));
    match parent {
        Some(parent) if matches!(parent.label, Label::State(_)) => None,
        Some(parent) if single_state(parent) == Some(state) => None,
        _ => Some(state),
    }
}

fn single_state(node: &Node) -> Option<State> {
    State::ALL
        .into_iter()
        .find(|s| node.weight > 0 && node.states[*s as usize] == node.weight)
}

/// Marks the `max` nodes to show: heavy ones, and those near the roots rather than deep ones.
fn heaviest(group: &Group, max: usize) -> Vec<bool> {
    let mut order: Vec<(f64, usize)> = group
        .walk()
        .map(|(at, node, depth)| {
            (
                node.weight as f64 * 0.85_f64.powi(depth.min(1000) as i32),
                at,
            )
        })
        .collect();
    // A child's score is below its parent's, so that no shown node lacks its parent.
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut shown = vec![false; group.nodes.len()];
    for (_, at) in order.into_iter().take(max) {
        if let Some(mark) = shown.get_mut(at) {
            *mark = true;
        }
    }
    shown
}
