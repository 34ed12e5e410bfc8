//! The text format of uwpmp, as pasted into trackers.
//!
//! For each thread, sorted by name: a blank line, `Thread TID (comm) - N samples`, and the tree.
//! A line is the prefix, `+ `, the percentage of that thread's time with two decimals, `% ` and
//! the name. Each level adds one column to the prefix: `|` where siblings follow, else a blank. A
//! node below the threshold is printed, its children are not. N is the number of ticks that
//! observed the thread; percentages are of its weights, since wcprof's samples are not all alike.

use std::io::{self, Write};

use wcprof_profile::model::Profile;
use wcprof_profile::{Group, GroupBy, GroupKey, Trees, View};
use wcprof_text::{columns, cut, first_columns, percent, terminal_name};

/// Writes the profile in uwpmp's format: root first (`unwindpmp`) or inverted (`unwindpmp -v`). uwpmp knows
/// no idle time; percentages are of all of the thread's time whether the view shows it or not. Children
/// of a node below the view's `min_percent` are not printed; uwpmp's default is 0.1. Grouping and state
/// frames do not matter. Lines are cut to `width` characters (uwpmp on a terminal); `None` does not cut.
pub fn uwpmp(
    profile: &Profile,
    view: &View,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let by_thread = View {
        by: GroupBy::Thread,
        state_frames: false,
        min_percent: 0.0,
        ..view.clone()
    };
    let trees = Trees::new(profile, &by_thread);
    let mut threads: Vec<_> = trees
        .groups
        .iter()
        .filter_map(|group| match group.key {
            GroupKey::Thread(at) => Some((profile.threads.get(at)?, group)),
            _ => None,
        })
        .collect();
    threads.sort_by(|(a, _), (b, _)| (&a.comm, a.tid).cmp(&(&b.comm, b.tid)));
    for (thread, group) in threads {
        let (tid, name) = (thread.tid, terminal_name(&thread.comm));
        writeln!(out, "\nThread {tid} ({name}) - {} samples", thread.n_ticks)?;
        tree(profile, group, view.min_percent, width, out)?;
    }
    Ok(())
}

fn tree(
    profile: &Profile,
    group: &Group,
    min_percent: f64,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let total = group.observed();
    // The prefix of the level being printed; deep stacks must not recurse.
    let mut prefix = String::new();
    let mut next: Vec<(usize, usize, bool)> = siblings(&group.roots, 0);
    while let Some((at, depth, last)) = next.pop() {
        let node = &group.nodes[at];
        prefix.truncate(depth);
        // uwpmp computes, prints and compares in single precision.
        let share = percent(node.weight, total) as f32;
        let name = node.label.text(profile, 0.0);
        let head = format!("{prefix}+ {share:.2}% ");
        let line = cut_line(&head, &terminal_name(&name), width);
        writeln!(out, "{line}")?;
        if share >= min_percent as f32 {
            prefix.push(if last { ' ' } else { '|' });
            next.extend(siblings(&node.children, depth + 1));
        }
    }
    Ok(())
}

/// A line as uwpmp cuts it: `...` ends a name that is cut, but only where the width holds the head
/// and those three characters; below that, the line just ends.
fn cut_line(head: &str, name: &str, width: Option<usize>) -> String {
    let line = format!("{head}{name}");
    match width {
        Some(width) if columns(head) + 3 > width => first_columns(&line, width).to_owned(),
        _ => cut(&line, width).into_owned(),
    }
}

/// Nodes of one level in the order of a stack to pop from: with their depth, and whether each is
/// the last.
fn siblings(nodes: &[usize], depth: usize) -> Vec<(usize, usize, bool)> {
    let reversed = nodes.iter().rev().enumerate();
    reversed.map(|(i, &n)| (n, depth, i == 0)).collect()
}
