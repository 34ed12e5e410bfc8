//! The text of uwpmp and gdbpmp: a tree of percentages a thread, forward or inverted, whole or a
//! piece of it that was pasted somewhere.
//!
//! A line is a prefix of blanks and `|` (one column a level; two in gdbpmp before 2021), `+ `, a
//! percentage of the thread's samples and a name. What a node's children leave is its own time.

use wcprof_trace::model::{Span, ThreadId, Trace};
use wcprof_types::{Pid, StackEnd, ThreadState, Tid, TimeNs};

use crate::builder::Builder;
use crate::error::{ImportError, Result, within};
use crate::format::Format;
use crate::limits;
use crate::options::Options;
use crate::waits;

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

/// `Thread 991782 (tp_osd_tp) - 100 samples`; gdbpmp has a colon after `Thread`.
fn thread_line(line: &str) -> Option<(Format, Tree)> {
    let rest = unquoted(line).trim().strip_prefix("Thread")?;
    let (format, rest) = match rest.strip_prefix(':') {
        Some(rest) => (Format::Gdbpmp, rest),
        None => (Format::Uwpmp, rest),
    };
    let (id, rest) = rest.trim_start().split_once(' ')?;
    let (comm, count) = rest.trim_start().strip_prefix('(')?.rsplit_once(") - ")?;
    let n_samples = count.trim().strip_suffix("samples")?.trim().parse().ok()?;
    let tree = Tree {
        id: id.parse().ok()?,
        comm: comm.to_owned(),
        n_samples: Some(n_samples),
        nodes: Vec::new(),
    };
    Some((format, tree))
}

/// The format of a text in which this line is the head of a thread's tree.
pub(crate) fn format_of_head(line: &str) -> Option<Format> {
    thread_line(line).map(|(format, _)| format)
}

/// A quoted line without its mark.
pub(crate) fn unquoted(line: &str) -> &str {
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
    depth: usize,
    /// Of the thread's samples.
    hundredths: u64,
    name: String,
}

struct Tree {
    id: i32,
    comm: String,
    /// `None` for a piece without a head.
    n_samples: Option<u64>,
    nodes: Vec<Node>,
}

/// The trees of a text, and the number of lines that were not understood.
fn parse(text: &str) -> Result<(Vec<Tree>, usize)> {
    let mut trees: Vec<Tree> = Vec::new();
    let (mut n_bad, mut n_nodes) = (0, 0);
    // Whether the name of the last node may go on.
    let mut may_go_on = false;
    for line in text.lines() {
        if let Some((_, tree)) = thread_line(line) {
            within(
                trees.len() + 1,
                limits::MAX_THREADS,
                "the number of threads",
            )?;
            trees.push(tree);
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
            within(n_nodes, limits::MAX_NODES, "the number of lines")?;
            if let Some(tree) = trees.last_mut() {
                tree.nodes.push(Node {
                    column,
                    depth: 0,
                    hundredths,
                    name: name.to_owned(),
                });
            }
            may_go_on = true;
        } else {
            let rest = unquoted(line);
            let unaligned = rest.trim_start_matches([' ', '|']);
            let name = unaligned.trim_end();
            // `--truncate=false` wraps names, aligned under their start.
            may_go_on &= !name.is_empty() && unaligned.len() < rest.len();
            let node = trees.last_mut().and_then(|tree| tree.nodes.last_mut());
            match node.filter(|node| node.name.len() + name.len() < limits::MAX_NAME_BYTES) {
                Some(node) if may_go_on => node.name.push_str(name),
                _ => {
                    may_go_on = false;
                    n_bad += usize::from(!name.is_empty() && !is_progress(name));
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
    let pairs = trees.iter().flat_map(|tree| tree.nodes.windows(2));
    let steps = pairs.filter_map(|pair| pair[1].column.checked_sub(pair[0].column));
    steps.filter(|step| *step > 0).min().unwrap_or(1)
}

/// Sets the depth of each node, and removes those that cannot be where they are; how many these were.
fn set_depths(tree: &mut Tree, step: usize) -> usize {
    let n_all = tree.nodes.len();
    let base = tree.nodes.first().map_or(0, |node| node.column);
    let mut next = 0;
    tree.nodes.retain_mut(|node| {
        let Some(columns) = node.column.checked_sub(base) else {
            return false;
        };
        node.depth = columns / step;
        let is_possible = columns.is_multiple_of(step) && node.depth <= next;
        let fits = is_possible && node.depth < limits::MAX_FRAMES;
        if fits {
            next = node.depth + 1;
        }
        fits
    });
    n_all - tree.nodes.len()
}

/// Whether leaf functions come first; `None` when neither end has a function that threads begin
/// with.
fn is_inverted(trees: &[Tree]) -> Option<bool> {
    let (mut first, mut last) = (0_u64, 0_u64);
    for nodes in trees.iter().map(|tree| &tree.nodes) {
        for (at, node) in nodes.iter().enumerate() {
            let name = node.name.split(['(', '@']).next().unwrap_or_default();
            if !ROOTS.contains(&name) {
                continue;
            }
            let next = nodes.get(at + 1);
            let has_child = next.is_some_and(|next| next.depth > node.depth);
            if node.depth == 0 {
                first += node.hundredths;
            } else if !has_child {
                last += node.hundredths;
            }
        }
    }
    (first != last).then_some(last > first)
}

pub(crate) fn import(text: &str, format: Format, options: &Options) -> Result<Trace> {
    let (mut trees, mut n_bad) = parse(text)?;
    trees.retain(|tree| !tree.nodes.is_empty());
    let step = columns_a_level(&trees);
    for tree in &mut trees {
        n_bad += set_depths(tree, step);
    }
    let inverted = options.inverted.or_else(|| is_inverted(&trees));
    let unit = options.unit_ns.unwrap_or(UNIT_NS);
    let mut builder = Builder::new(format.what(), options);
    let process = builder.process(Pid(0), "imported")?;
    let (mut duration, mut n_cut, mut n_headless) = (0, 0, 0);
    for tree in &trees {
        let is_cut = |node: &&Node| node.name.ends_with("...");
        n_cut += tree.nodes.iter().filter(is_cut).count();
        n_headless += u64::from(tree.n_samples.is_none());
        let scale = Scale {
            n_samples: tree.n_samples.unwrap_or(HEADLESS_SAMPLES),
            unit: match tree.n_samples {
                Some(_) => unit,
                None => (unit / 100).max(1),
            },
            inverted: inverted == Some(true),
        };
        let total = scale.total();
        let what = "the time of a thread, ns,";
        within(total as usize, limits::MAX_TIME_NS as usize, what)?;
        duration = duration.max(total);
        let thread = builder.thread(process, Tid(tree.id.max(1)), &tree.comm)?;
        builder.trace.tables.threads[thread.0 as usize].end = TimeNs(total);
        add(&mut builder, thread, tree, &scale)?;
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
    match inverted {
        Some(false) => {}
        Some(true) => {
            builder.note("the tree was inverted: where its branches were cut, callers are missing")
        }
        None => builder
            .note("taken as a forward tree: no function that threads begin with is at either end"),
    }
    let cut = "names were cut by the terminal's width and end in `...`";
    builder.note_counts([
        (n_headless, "trees have no head: their thread is unknown"),
        (n_bad as u64, "lines were not understood and are left out"),
        (n_cut as u64, cut),
    ]);
    let mut trace = builder.finish(duration);
    waits::guess_waits(&mut trace);
    Ok(trace)
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

    /// The time of the thread, ns.
    fn total(&self) -> u64 {
        self.n_samples.saturating_mul(self.unit)
    }
}

/// Adds the time of each node that its children leave.
fn add(builder: &mut Builder, thread: ThreadId, tree: &Tree, scale: &Scale) -> Result<()> {
    // Samples that a node's children leave to it; 0 stands for all of the thread.
    let mut own = vec![scale.n_samples];
    let mut path = vec![0];
    for node in &tree.nodes {
        path.truncate(node.depth + 1);
        let n = scale.samples(node.hundredths);
        let parent = &mut own[path[node.depth]];
        *parent = parent.saturating_sub(n);
        path.push(own.len());
        own.push(n);
    }
    if own[0] > 0 {
        builder.span(span(thread, scale, own[0]))?;
    }
    let mut frames = Vec::new();
    for (node, n) in tree.nodes.iter().zip(&own[1..]) {
        frames.truncate(node.depth);
        frames.push(builder.named(&node.name)?);
        if *n > 0 {
            let mut root_first = frames.clone();
            if scale.inverted {
                root_first.reverse();
            }
            let mut span = span(thread, scale, *n);
            span.stack = Some(builder.stack(root_first, StackEnd::Root)?);
            builder.span(span)?;
        }
    }
    Ok(())
}

/// Its time is unknown: the weight lies somewhere in the thread's whole time.
fn span(thread: ThreadId, scale: &Scale, n: u64) -> Span {
    Span {
        thread,
        start: TimeNs(0),
        end: TimeNs(scale.total()),
        weight: n.saturating_mul(scale.unit).min(scale.total()),
        n_samples: u32::try_from(n).unwrap_or(u32::MAX),
        state: ThreadState::Unknown,
        wait: None,
        stack: None,
    }
}
