//! Call trees as text: percent of the time of the tree, time, and the functions; on-CPU time, waits and stopped time apart.
//!
//! `±` is half the width of the 95 % confidence interval, in points.
//!
//! Percentages are of the time of the tree, which its heading says: its roots add up to 100 %, and what is pruned is pruned
//! by the same base. A function that all time of another passes through follows it
//! in its line: only branches take lines.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use rayon::prelude::*;
use wcprof_profile::model::{Profile, State};
use wcprof_profile::short;
use wcprof_profile::{Group, GroupKey, Interval, KERNEL, Label, Node, Trees, View, is_runtime};
use wcprof_text::{columns, count, cut, percent, terminal_name};

use crate::colors::ansi;
use crate::figures::{amount, at_a_time};
use crate::group::group_name;

/// How to print.
#[derive(Copy, Clone, Debug, Default)]
pub struct TextOptions {
    /// Cut lines to so many characters; `None` does not cut.
    pub width: Option<usize>,
    /// Use ANSI colors.
    pub color: bool,
    /// Most nodes a tree; the heaviest, nearest to the tree's roots, are shown, and `...` follows
    /// those that have others below them, none of which is. `None` for all.
    pub max_nodes: Option<usize>,
    /// Count groups without any time to show, and do not list them.
    pub only_shown: bool,
    /// Full names, each function in a line of its own; else without arguments, template arguments and
    /// outer namespaces, and without what the C library and the standard libraries call in themselves.
    pub full_names: bool,
}

/// The trees of a view, on-CPU time, waits and stopped time apart.
#[derive(Debug)]
pub struct TextTrees {
    /// Each with its heading; one without when the view has chosen states.
    parts: Vec<(Option<&'static str>, Trees)>,
    leaf_first: bool,
}

impl TextTrees {
    /// Builds the trees.
    pub fn new(profile: &Profile, view: &View) -> Self {
        let (on_cpu, others): (Vec<State>, Vec<State>) =
            State::ALL.into_iter().partition(|s| s.is_running());
        let (stopped, waits) = others.into_iter().partition(|s| *s == State::Stopped);
        let part = |states: Vec<State>| {
            let states = states.into_iter().filter(|state| view.shows(*state));
            let states = Some(states.collect());
            Trees::new(
                profile,
                &View {
                    states,
                    ..view.clone()
                },
            )
        };
        let parts = match &view.states {
            Some(_) => vec![(None, Trees::new(profile, view))],
            None => vec![
                (Some("on-CPU"), part(on_cpu)),
                (Some("waits"), part(waits)),
                (Some("stopped"), part(stopped)),
            ],
        };
        Self {
            parts,
            leaf_first: view.is_leaf_first(),
        }
    }

    /// Leaves out groups.
    pub fn retain(&mut self, is_wanted: impl Fn(&Group) -> bool) {
        for (_, trees) in &mut self.parts {
            trees.groups.retain(&is_wanted);
        }
    }

    /// The parts of each group, the heaviest group first.
    fn groups(&self) -> Vec<Vec<Option<&Group>>> {
        let mut places: HashMap<&GroupKey, usize> = HashMap::new();
        let mut groups: Vec<Vec<Option<&Group>>> = Vec::new();
        for (at, (_, trees)) in self.parts.iter().enumerate() {
            for group in &trees.groups {
                let place = *places.entry(&group.key).or_insert_with(|| {
                    groups.push(vec![None; self.parts.len()]);
                    groups.len() - 1
                });
                groups[place][at] = Some(group);
            }
        }
        // Stable: equal ones are in the order of their threads.
        groups.sort_by_key(|parts| Reverse(shown_ns(parts)));
        groups
    }
}

/// Time of a group that the view shows.
fn shown_ns(parts: &[Option<&Group>]) -> u64 {
    let weights = parts.iter().flatten().map(|group| group.weight);
    weights.fold(0, u64::saturating_add)
}

/// Writes the trees as text.
pub fn text(
    profile: &Profile,
    trees: &TextTrees,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let groups = trees.groups().into_iter();
    let (listed, empty): (Vec<_>, Vec<_>) =
        groups.partition(|parts| !options.only_shown || shown_ns(parts) > 0);
    if !listed.is_empty() {
        let columns = "  share ±95 %      time  function, and what it called";
        let mut columns = match trees.leaf_first {
            true => columns.replace("what it called", "who called it"),
            false => columns.to_owned(),
        };
        if profile.header.n_snapshots > 0 {
            columns = columns.replace("   time", "threads");
        }
        writeln!(out, "{}", cut(&columns, options.width))?;
    }
    let texts = listed.par_iter().map(|parts| {
        let mut text = Vec::new();
        write_group(profile, trees, parts, options, &mut text).map(|()| text)
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

/// Writes one group: its header, and each part's tree.
fn write_group(
    profile: &Profile,
    trees: &TextTrees,
    parts: &[Option<&Group>],
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(first) = parts.iter().flatten().next() else {
        return Ok(());
    };
    let line = header(profile, first);
    let line = cut(&line, options.width);
    match options.color {
        true => writeln!(out, "\x1b[1m{line}\x1b[0m")?,
        false => writeln!(out, "{line}")?,
    }
    for (group, (heading, part)) in parts.iter().zip(&trees.parts) {
        let Some(group) = group.filter(|group| group.weight > 0) else {
            continue;
        };
        let heading = heading.map_or_else(String::new, |heading| format!("{heading} "));
        let at_a_time = at_a_time(profile, group.weight);
        let line = format!(
            " {heading}{} = 100 %, {at_a_time:.2} threads on average",
            amount(profile, group.weight)
        );
        writeln!(out, "{}", cut(&line, options.width))?;
        let names = Names {
            profile,
            separator: if trees.leaf_first { " < " } else { " > " },
            full: options.full_names,
            min_percent: part.min_percent,
        };
        write_tree(group, &names, options, out)?;
    }
    Ok(())
}

fn write_tree(
    group: &Group,
    names: &Names<'_>,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = options.max_nodes.map(|max| heaviest(group, max));
    let is_shown = |node: &usize| shown.as_ref().is_none_or(|shown| shown[*node]);
    let visible = |list: &[usize]| list.iter().copied().filter(is_shown).collect::<Vec<_>>();
    // Nodes to print, last first: the node, its lead, the lead of its descendants.
    let mut next: Vec<(usize, String, String)> = Vec::new();
    branch(&visible(&group.roots), group.roots.len(), "", &mut next);
    while let Some((at, lead, below)) = next.pop() {
        let chain = match options.full_names {
            true => vec![at],
            false => chain(group, at, is_shown),
        };
        let last = &group.nodes[chain.last().copied().unwrap_or(at)];
        let children = visible(&last.children);
        // What is below it had no room.
        let is_cut = children.is_empty() && !last.children.is_empty();
        let name = format!("{lead}{}", terminal_name(&names.text(group, &chain)));
        write_node(
            names.profile,
            group,
            &group.nodes[at],
            &name,
            is_cut,
            options,
            out,
        )?;
        branch(&children, last.children.len(), &below, &mut next);
    }
    Ok(())
}

/// The node and those that all its time passes through, one below the other.
fn chain(group: &Group, first: usize, is_shown: impl Fn(&usize) -> bool) -> Vec<usize> {
    let mut chain = vec![first];
    let mut at = &group.nodes[first];
    while let [only] = at.children.as_slice()
        && is_shown(only)
        && group.nodes[*only].weight == at.weight
    {
        chain.push(*only);
        at = &group.nodes[*only];
    }
    chain
}

/// How nodes are named.
struct Names<'p> {
    profile: &'p Profile,
    /// Between functions of a chain.
    separator: &'static str,
    full: bool,
    min_percent: f64,
}

impl Names<'_> {
    /// The names of a chain; not escaped.
    fn text(&self, group: &Group, chain: &[usize]) -> String {
        let mut names = Vec::new();
        let mut was_library = false;
        for &at in chain {
            let label = &group.nodes[at].label;
            let function = label.function(self.profile).filter(|_| !self.full);
            // Functions of the kernel are there where they were asked for.
            let is_library = function.is_some_and(|f| is_runtime(f) && f.module != KERNEL);
            match function {
                Some(_) if is_library && was_library => {}
                Some(function) => {
                    let place = function.place().map(|place| format!(" ({place})"));
                    names.push(short(&function.name) + &place.unwrap_or_default());
                }
                None => names.push(label.text(self.profile, self.min_percent).into_owned()),
            }
            was_library = is_library;
        }
        names.join(self.separator)
    }
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
    let states = group.states.into_iter().zip(State::ALL);
    let mut states: Vec<(u64, State)> = states.filter(|(weight, _)| *weight > 0).collect();
    states.sort_by_key(|(weight, _)| Reverse(*weight));
    let states = states.into_iter();
    let states = states.map(|(ns, state)| format!("{} {}", state.name(), amount(profile, ns)));
    format!(
        "{}: {}, {} observed: {}",
        terminal_name(&name),
        count(group.threads.len(), "thread"),
        amount(profile, group.observed()),
        states.collect::<Vec<_>>().join(", "),
    )
}

/// A line: figures, the tree with its name, the state.
fn write_node(
    profile: &Profile,
    group: &Group,
    node: &Node,
    tree: &str,
    is_cut: bool,
    options: &TextOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    let share = percent(node.weight, group.weight);
    let sure = plus_minus(node.interval, group.weight);
    let figures = format!("{share:6.2}% {sure:<6} {:>8}", amount(profile, node.weight));
    let mark = if is_cut { " ..." } else { "" };
    let state = annotation(group, node);
    let state_text = state.map_or_else(String::new, |s| format!(" {}", s.frame()));
    let taken = columns(&figures) + 2 + mark.len() + state_text.len();
    let tree = cut(tree, options.width.map(|w| w.saturating_sub(taken)));
    let color = match share {
        _ if !options.color => "",
        20.0.. => "\x1b[1;31m",
        5.0.. => "\x1b[33m",
        _ => "",
    };
    let reset = if color.is_empty() { "" } else { "\x1b[0m" };
    let state_text = match state.filter(|_| options.color) {
        Some(state) => format!("\x1b[{}m{state_text}\x1b[0m", ansi(state)),
        None => state_text,
    };
    writeln!(out, "{color}{figures}{reset}  {tree}{mark}{state_text}")
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

/// The state to print at a node: where nearly all its time is in one state and its parent's is not.
fn annotation(group: &Group, node: &Node) -> Option<State> {
    if matches!(node.label, Label::State(_) | Label::NotSampled(_)) {
        return None;
    }
    let state = main_state(node)?;
    let parent = node.parent.map(|p| &group.nodes[p]);
    let is_said = parent.is_some_and(|parent| {
        matches!(parent.label, Label::State(_)) || main_state(parent) == Some(state)
    });
    (!is_said).then_some(state)
}

/// The state of at least 95 % of a node's time: entering and leaving a wait takes some time in another state, too.
fn main_state(node: &Node) -> Option<State> {
    let is_main = |s: &State| percent(node.states[*s as usize], node.weight) >= 95.0;
    State::ALL.into_iter().find(is_main)
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
