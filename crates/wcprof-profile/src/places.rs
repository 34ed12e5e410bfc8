//! Whether a wait is the place where a pool waits for work, or a wait in the middle of work.
//!
//! A thread is idle in the wait at the top of its dispatch loop. That place is found from the stacks
//! of a pool: going from the root to the leaf, the path of such a wait leaves the functions that work
//! at the loop's own function, and nothing beyond works. A wait further down, below a function that
//! works, is part of the work. The shallowest such place counts.
//!
//! Nothing is decided for a pool that hardly ran, nor for stacks whose root was not found.

use std::collections::{HashMap, HashSet};

use wcprof_trace::FastState;

use crate::functions::KERNEL;
use crate::model::{Function, FunctionId};

/// Samples of work that show which functions work.
const MIN_WORK: u64 = 5;
/// Observations of a wait that its pool keeps coming back to.
const MIN_WAITS: u64 = 2;
/// A branch that works at most 1/4 as much as the busiest one beside it does not work: entering and
/// leaving a wait takes CPU time, too.
const QUIET: u64 = 4;
/// Functions from the root among which a dispatch loop is searched. Bounds the time for forged stacks.
const MAX_DEPTH: usize = 256;

/// Whether a function belongs to the kernel, the C library or a language's standard library: it says
/// how a thread waits, not what for.
pub fn is_runtime(function: &Function) -> bool {
    const MODULES: [&str; 8] = [
        KERNEL,
        "[vdso]",
        "libc.so",
        "libc-2",
        "libpthread",
        "ld-",
        "libstdc++",
        "libc++",
    ];
    const NAMES: [&str; 7] = [
        "std::",
        "<std::",
        "core::",
        "pthread_",
        "__pthread_",
        "__gthread",
        "syscall",
    ];
    let starts = |name: &str, starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    starts(&function.module, &MODULES) || starts(&function.name, &NAMES)
}

/// One thread at one place: a row of a pool.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) thread: usize,
    /// Root first, without the C library's and the standard libraries' functions at the leaf.
    pub(crate) path: &'a [FunctionId],
    /// Such functions were left out.
    pub(crate) in_library: bool,
    /// It is a wait that may be for work; else the thread worked, or waited for a lock, disk or network.
    pub(crate) may_be_idle: bool,
    /// Observations.
    pub(crate) n: u64,
}

/// What is known of a wait that may be for work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Nothing shows where the pool waits for work.
    Unknown,
    /// The top of the dispatch loop.
    Loop,
    /// Below a function that works.
    InWork,
}

/// A function on the path of a wait, at its callers.
#[derive(Default)]
struct Node {
    children: Vec<(FunctionId, usize)>,
    /// Observations of waits that are here.
    n_waits: u64,
    /// The same, here and below.
    all_waits: u64,
    /// Work in functions called from here that are on no wait's path.
    work: HashMap<FunctionId, u64, FastState>,
    /// Work here and below.
    all_work: u64,
}

/// Where each thread is, by index into the nodes, and the function that it works in if that is none.
type At = (usize, Option<FunctionId>);

/// What the rows of one pool show, in their order. `Unknown` for those that are no wait.
pub(crate) fn places(seen: &[Seen<'_>]) -> Vec<Place> {
    let mut found = vec![Place::Unknown; seen.len()];
    let mut nodes = vec![Node::default()];
    let mut at: Vec<Option<At>> = vec![None; seen.len()];
    for (row, at) in seen.iter().zip(&mut at).filter(|(row, _)| row.may_be_idle) {
        if row.path.len() <= MAX_DEPTH {
            let node = node_of(&mut nodes, row.path);
            nodes[node].n_waits += row.n;
            *at = Some((node, None));
        }
    }
    for (row, at) in seen.iter().zip(&mut at).filter(|(row, _)| !row.may_be_idle) {
        let place = leaves_at(&nodes, row.path);
        let node = &mut nodes[place.0];
        // What enters or leaves the wait itself is no work.
        let enters_wait = place.1.is_none() && row.in_library && node.n_waits > 0;
        if !enters_wait {
            match place.1 {
                Some(function) => *node.work.entry(function).or_default() += row.n,
                None => node.all_work += row.n,
            }
            *at = Some(place);
        }
    }
    // Callers have smaller indices than what they call.
    for node in (0..nodes.len()).rev() {
        let children = nodes[node].children.iter();
        let (waits, work) = children.fold((0, 0), |(waits, work), &(_, child)| {
            (waits + nodes[child].all_waits, work + nodes[child].all_work)
        });
        let elsewhere: u64 = nodes[node].work.values().sum();
        nodes[node].all_waits = nodes[node].n_waits + waits;
        nodes[node].all_work += work + elsewhere;
    }
    let mut callers = vec![0; nodes.len()];
    for (caller, node) in nodes.iter().enumerate() {
        for &(_, child) in &node.children {
            callers[child] = caller;
        }
    }
    let mut loops = Vec::new();
    let mut below = vec![0];
    while let Some(node) = below.pop() {
        match dispatch_loop(&nodes, &callers, node, seen, &at) {
            Some(quiet) => loops.push((node, quiet)),
            None => {
                let children = nodes[node].children.iter().map(|&(_, child)| child);
                below.extend(children.filter(|&child| nodes[child].all_waits > 0));
            }
        }
    }
    let loops: HashMap<usize, HashSet<usize>> = loops.into_iter().collect();
    for ((row, at), found) in seen.iter().zip(&at).zip(&mut found) {
        if let (true, Some((node, _))) = (row.may_be_idle, at) {
            *found = place_of(*node, &callers, &loops);
        }
    }
    found
}

/// The node of a path, made where it is missing.
fn node_of(nodes: &mut Vec<Node>, path: &[FunctionId]) -> usize {
    path.iter().fold(0, |node, &function| {
        child(&nodes[node], function).unwrap_or_else(|| {
            let new = nodes.len();
            nodes[node].children.push((function, new));
            nodes.push(Node::default());
            new
        })
    })
}

/// The node at which a path leaves those of the waits, and the function that it goes on with.
fn leaves_at(nodes: &[Node], path: &[FunctionId]) -> At {
    let mut node = 0;
    for &function in path {
        match child(&nodes[node], function) {
            Some(next) => node = next,
            None => return (node, Some(function)),
        }
    }
    (node, None)
}

fn child(node: &Node, function: FunctionId) -> Option<usize> {
    let mut children = node.children.iter();
    children
        .find(|(f, _)| *f == function)
        .map(|&(_, child)| child)
}

/// Whether a function is a dispatch loop: it calls one that works, and the same threads wait in it or
/// in what hardly works. Gives the nodes of these waits (its own if it waits itself).
fn dispatch_loop(
    nodes: &[Node],
    callers: &[usize],
    node: usize,
    seen: &[Seen<'_>],
    at: &[Option<At>],
) -> Option<HashSet<usize>> {
    let this = &nodes[node];
    let children = this
        .children
        .iter()
        .map(|&(f, child)| (f, nodes[child].all_work));
    let works = children.chain(this.work.iter().map(|(&f, &work)| (f, work)));
    let (busiest, work) = works.max_by_key(|&(_, work)| work)?;
    let children = this.children.iter().map(|&(_, child)| child);
    let mut quiet: HashSet<usize> = children
        .filter(|&c| nodes[c].all_waits > 0 && nodes[c].all_work * QUIET <= work)
        .collect();
    let in_quiet: u64 = quiet.iter().map(|&c| nodes[c].all_waits).sum();
    if this.n_waits > 0 {
        quiet.insert(node);
    }
    if work < MIN_WORK || this.n_waits + in_quiet < MIN_WAITS {
        return None;
    }
    let rows = || {
        seen.iter()
            .zip(at)
            .filter_map(|(row, at)| Some((row, (*at)?)))
    };
    let waiting: HashSet<usize> = rows()
        .filter(|(row, (place, _))| {
            row.may_be_idle && step(callers, node, *place).is_some_and(|s| quiet.contains(&s))
        })
        .map(|(row, _)| row.thread)
        .collect();
    let busy = child(this, busiest);
    let of_waiting: u64 = rows()
        .filter(|(row, _)| !row.may_be_idle && waiting.contains(&row.thread))
        .filter(|(_, (place, function))| match busy {
            Some(busy) => step(callers, node, *place) == Some(busy),
            None => (*place, *function) == (node, Some(busiest)),
        })
        .map(|(row, _)| row.n)
        .sum();
    (of_waiting * 2 >= work).then_some(quiet)
}

/// The node after `node` on the way to a place: `node` itself for a place that is there, `None` when
/// the way does not lead through `node`.
fn step(callers: &[usize], node: usize, place: usize) -> Option<usize> {
    let mut step = place;
    while step != node {
        if step == 0 {
            return None;
        }
        if callers[step] == node {
            return Some(step);
        }
        step = callers[step];
    }
    Some(node)
}

/// What the dispatch loops on the way to a wait say of it.
fn place_of(wait: usize, callers: &[usize], loops: &HashMap<usize, HashSet<usize>>) -> Place {
    let (mut step, mut node) = (wait, wait);
    loop {
        if let Some(quiet) = loops.get(&node) {
            return match quiet.contains(&step) {
                true => Place::Loop,
                false => Place::InWork,
            };
        }
        if node == 0 {
            return Place::Unknown;
        }
        (step, node) = (node, callers[node]);
    }
}
