//! The text of uwpmp and gdbpmp: a tree of percentages a thread, forward or inverted, whole or a
//! piece of it that was pasted somewhere.
//!
//! A line is a prefix of blanks and `|` (one column a level; two in gdbpmp before 2021), `+ `, a
//! percentage of the thread's samples and a name. What a node's children leave is its own time.

use wcprof_trace::model::{Span, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::detect::Format;
use crate::error::ImportError;
use crate::waits;
use crate::{Options, limits};

/// What a sample stands for when nobody says.
const UNIT_NS: u64 = 10_000_000;
/// Samples that a tree without a head is taken to have: its percentages have two decimals.
const HEADLESS_SAMPLES: u64 = 10_000;
/// Functions that a thread begins with.
const ROOTS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "main",
    "start_thread",
    "thread_start",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "__clone_internal",
];

/// The head of a thread's tree.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ThreadLine<'a> {
    pub(crate) format: Format,
    id: i32,
    comm: &'a str,
    n_samples: u64,
}

/// `Thread 991782 (tp_osd_tp) - 100 samples`; gdbpmp has a colon after `Thread`.
pub(crate) fn thread_line(line: &str) -> Option<ThreadLine<'_>> {
    let rest = unquoted(line).trim().strip_prefix("Thread")?;
    let (format, rest) = match rest.strip_prefix(':') {
        Some(rest) => (Format::Gdbpmp, rest),
        None => (Format::Uwpmp, rest),
    };
    let (id, rest) = rest.trim_start().split_once(' ')?;
    let (comm, count) = rest.trim_start().strip_prefix('(')?.rsplit_once(") - ")?;
    let n_samples = count.trim().strip_suffix("samples")?.trim().parse().ok()?;
    Some(ThreadLine {
        format,
        id: id.parse().ok()?,
        comm,
        n_samples,
    })
}

/// A quoted line without its mark.
fn unquoted(line: &str) -> &str {
    line.strip_prefix("> ").unwrap_or(line)
}

/// The column of the `+`, the percentage in hundredths, and the name.
fn tree_line(line: &str) -> Option<(usize, u64, &str)> {
    let line = unquoted(line);
    let column = line.find(|c| !matches!(c, ' ' | '|'))?;
    let (percent, name) = line.get(column..)?.strip_prefix("+ ")?.split_once("% ")?;
    let (whole, hundredths) = percent.trim().split_once('.')?;
    if hundredths.len() != 2 || whole.len() > 3 {
        return None;
    }
    let percent = whole.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?;
    (percent <= 10_000 && !name.trim().is_empty()).then_some((column, percent, name.trim_end()))
}

/// Whether a line belongs to a tree.
pub(crate) fn is_tree_line(line: &str) -> bool {
    tree_line(line).is_some()
}

/// A node of a tree; its children follow it, deeper.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    column: usize,
    /// Of the thread's samples.
    hundredths: u64,
    name: String,
}

#[derive(Debug)]
struct Tree {
    id: i32,
    comm: String,
    /// `None` for a piece without a head.
    n_samples: Option<u64>,
    nodes: Vec<Node>,
}

/// What the text says, and the lines that were not understood.
fn parse(text: &str) -> Result<(Vec<Tree>, usize), ImportError> {
    let mut trees: Vec<Tree> = Vec::new();
    let (mut n_bad, mut n_nodes) = (0, 0);
    let mut may_go_on = false;
    for line in text.lines() {
        if let Some(head) = thread_line(line) {
            trees.push(Tree {
                id: head.id,
                comm: head.comm.to_owned(),
                n_samples: Some(head.n_samples),
                nodes: Vec::new(),
            });
            may_go_on = false;
        } else if let Some((column, hundredths, name)) = tree_line(line) {
            if trees.is_empty() {
                trees.push(Tree {
                    id: 1,
                    comm: "imported".to_owned(),
                    n_samples: None,
                    nodes: Vec::new(),
                });
            }
            n_nodes += 1;
            if n_nodes > limits::MAX_NODES || trees.len() > limits::MAX_THREADS {
                return Err(ImportError::TooLarge {
                    what: "the number of lines",
                    limit: limits::MAX_NODES as u64,
                });
            }
            if let Some(tree) = trees.last_mut() {
                tree.nodes.push(Node {
                    column,
                    hundredths,
                    name: name.to_owned(),
                });
            }
            may_go_on = true;
        } else {
            let rest = unquoted(line);
            let name = rest.trim_start_matches([' ', '|']).trim_end();
            let is_aligned = rest.len() > rest.trim_start_matches([' ', '|']).len();
            let node = trees.last_mut().and_then(|t| t.nodes.last_mut());
            match node {
                _ if name.is_empty() => may_go_on = false,
                // `--truncate=false` wraps names, aligned under their begin.
                Some(node)
                    if may_go_on
                        && is_aligned
                        && node.name.len() + name.len() < limits::MAX_NAME_BYTES =>
                {
                    node.name.push_str(name);
                }
                _ if is_progress(name) => may_go_on = false,
                _ => {
                    n_bad += 1;
                    may_go_on = false;
                }
            }
        }
    }
    Ok((trees, n_bad))
}

/// What the two print while they sample.
fn is_progress(line: &str) -> bool {
    ["sample:", "Using ", "cache items:", "Gathering", "."]
        .iter()
        .any(|begin| line.starts_with(begin))
}

/// Columns of a level: the smallest step from a node to its first child.
fn columns_a_level(trees: &[Tree]) -> usize {
    let steps = trees.iter().flat_map(|tree| {
        tree.nodes
            .windows(2)
            .filter_map(|pair| pair.last()?.column.checked_sub(pair.first()?.column))
            .filter(|step| *step > 0)
    });
    steps.min().unwrap_or(1)
}

/// By node, its depth; `None` for one that cannot be where it is.
fn depths(tree: &Tree, step: usize) -> Vec<Option<usize>> {
    let base = tree.nodes.first().map_or(0, |node| node.column);
    let mut next = 0;
    tree.nodes
        .iter()
        .map(|node| {
            let columns = node.column.checked_sub(base)?;
            let depth = columns / step;
            let fits = columns.is_multiple_of(step) && depth <= next && depth < limits::MAX_FRAMES;
            fits.then(|| {
                next = depth + 1;
                depth
            })
        })
        .collect()
}

/// Whether leaf functions come first; `None` when neither end has a function that threads begin
/// with.
fn is_inverted(trees: &[(Tree, Vec<Option<usize>>)]) -> Option<bool> {
    let (mut first, mut last) = (0_u64, 0_u64);
    for (tree, depths) in trees {
        for (at, (node, depth)) in tree.nodes.iter().zip(depths).enumerate() {
            let name = node.name.split(['(', '@']).next().unwrap_or_default();
            if !ROOTS.contains(&name) {
                continue;
            }
            let has_child = depths.get(at + 1).copied().flatten() > *depth;
            match depth {
                Some(0) => first += node.hundredths,
                Some(_) if !has_child => last += node.hundredths,
                _ => {}
            }
        }
    }
    (first != last).then_some(last > first)
}

pub(crate) fn import(text: &str, format: Format, options: &Options) -> Result<Trace, ImportError> {
    let (trees, mut n_bad) = parse(text)?;
    let step = columns_a_level(&trees);
    let trees: Vec<_> = trees
        .into_iter()
        .filter(|tree| !tree.nodes.is_empty())
        .map(|tree| {
            let depths = depths(&tree, step);
            (tree, depths)
        })
        .collect();
    let told = options.inverted.or_else(|| is_inverted(&trees));
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let mut builder = Builder::new(format.what(), options);
    let process = builder.process(Pid(0), "imported")?;
    let (mut duration, mut n_cut) = (0, 0_u64);
    let mut n_headless = 0;
    for (tree, depths) in &trees {
        n_bad += depths.iter().filter(|d| d.is_none()).count();
        n_cut += tree
            .nodes
            .iter()
            .filter(|n| n.name.ends_with("..."))
            .count() as u64;
        let (n_samples, unit) = match tree.n_samples {
            Some(n) => (n, unit),
            None => {
                n_headless += 1;
                (HEADLESS_SAMPLES, (unit / 100).max(1))
            }
        };
        let total = n_samples
            .checked_mul(unit)
            .filter(|ns| *ns <= limits::MAX_TIME_NS)
            .ok_or(ImportError::TooLarge {
                what: "the time of a thread, ns,",
                limit: limits::MAX_TIME_NS,
            })?;
        duration = duration.max(total);
        let thread = builder.thread(process, Tid(tree.id.max(1)), &tree.comm)?;
        if let Some(thread) = builder.trace.tables.threads.get_mut(thread.0 as usize) {
            thread.end = TimeNs(total);
        }
        let inverted = told == Some(true);
        add(
            &mut builder,
            thread,
            tree,
            depths,
            &Scale {
                n_samples,
                unit,
                inverted,
            },
        )?;
    }
    if builder.trace.spans.is_empty() {
        return Err(ImportError::NoSamples(String::new()));
    }
    builder.note(format!(
        "one sample counts as {} ms; the real times are not in the text, and shares have two decimals",
        unit as f64 / 1e6
    ));
    builder.note(
        "states are guessed: a wait where the innermost function is a call that blocks, else unknown",
    );
    if told.is_none() {
        builder
            .note("taken as a forward tree: no function that threads begin with is at either end");
    } else if told == Some(true) {
        builder.note("the tree was inverted: where its branches were cut, callers are missing");
    }
    for (n, what) in [
        (n_headless, "trees have no head: their thread is unknown"),
        (n_bad, "lines were not understood and are left out"),
        (
            n_cut as usize,
            "names were cut by the terminal's width and end in `...`",
        ),
    ] {
        if n > 0 {
            builder.note(format!("{n} {what}"));
        }
    }
    Ok(builder.finish(duration))
}

/// What a thread's percentages are of.
struct Scale {
    n_samples: u64,
    unit: u64,
    inverted: bool,
}

impl Scale {
    fn samples(&self, hundredths: u64) -> u64 {
        let whole = u128::from(self.n_samples) * u128::from(hundredths);
        ((whole + 5_000) / 10_000) as u64
    }
}

/// Adds the time of each node that its children leave.
fn add(
    builder: &mut Builder,
    thread: ThreadId,
    tree: &Tree,
    depths: &[Option<usize>],
    scale: &Scale,
) -> Result<(), ImportError> {
    let nodes: Vec<(&Node, usize)> = tree
        .nodes
        .iter()
        .zip(depths)
        .filter_map(|(node, depth)| Some((node, (*depth)?)))
        .collect();
    // Samples that a node's children leave to it; 0 stands for all of the thread.
    let mut own: Vec<u64> = Vec::with_capacity(nodes.len() + 1);
    own.push(scale.n_samples);
    let mut path: Vec<usize> = vec![0];
    for (node, depth) in &nodes {
        path.truncate(depth + 1);
        let n = scale.samples(node.hundredths);
        if let Some(parent) = path.last().and_then(|&at| own.get_mut(at)) {
            *parent = parent.saturating_sub(n);
        }
        path.push(own.len());
        own.push(n);
    }
    let mut frames = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let first = |builder: &mut Builder, n: u64| match n {
        0 => Ok(()),
        n => builder.span(span(thread, scale, n, ThreadState::Unknown)),
    };
    first(builder, own.first().copied().unwrap_or_default())?;
    for ((node, depth), n) in nodes.iter().zip(own.iter().skip(1)) {
        frames.truncate(*depth);
        names.truncate(*depth);
        frames.push(builder.named(&node.name)?);
        names.push(&node.name);
        if *n == 0 {
            continue;
        }
        let (stack, leaf) = match scale.inverted {
            true => {
                let stack = builder.stack(frames.iter().rev().copied(), StackEnd::Root)?;
                (stack, names.first())
            }
            false => (
                builder.stack(frames.iter().copied(), StackEnd::Root)?,
                names.last(),
            ),
        };
        let wait = leaf.and_then(|leaf| waits::of_leaf(leaf));
        let state = match wait {
            Some(_) => ThreadState::Blocked,
            None => ThreadState::Unknown,
        };
        let mut span = span(thread, scale, *n, state);
        span.wait = wait.map(|wait| builder.wait(wait));
        span.stack = Some(stack);
        builder.span(span)?;
    }
    Ok(())
}

/// When is unknown: the weight lies somewhere in the thread's whole time.
fn span(thread: ThreadId, scale: &Scale, n: u64, state: ThreadState) -> Span {
    let total = scale.n_samples.saturating_mul(scale.unit);
    Span {
        thread,
        start: TimeNs(0),
        end: TimeNs(total),
        weight: n.saturating_mul(scale.unit).min(total),
        n_samples: u32::try_from(n).unwrap_or(u32::MAX),
        state,
        wait: None,
        stack: None,
    }
}
