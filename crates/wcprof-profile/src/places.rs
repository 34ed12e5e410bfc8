//! Whether a wait is the place where a pool waits for work, or a wait in the middle of work.
//!
//! A thread is idle in the wait at the top of its dispatch loop. That place is found from the stacks
//! of a pool: going from the root to the leaf, the path of such a wait leaves the functions that work
//! at the loop's own function, and nothing beyond works. A wait further down, below a function that
//! works, is part of the work. The shallowest such place counts.
//!
//! Nothing is decided for a pool that hardly ran, nor for stacks whose root was not found.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use crate::model::KERNEL;
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
    const MODULES: [&str; 12] = [
        KERNEL,
        "[vdso]",
        "libc.so",
        "libc-2",
        "libpthread",
        "libm.so",
        "libm-2",
        "libmvec",
        "libgcc_s",
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

/// Whether a function is of the kernel's scheduler: it puts a thread to sleep, whatever that waits for. The kernel
/// leaves such functions out of `/proc/PID/task/TID/stack` (`in_sched_functions`, kernel/sched/core.c).
pub(crate) fn is_scheduler(function: &Function) -> bool {
    const STARTS: [&str; 11] = [
        "__schedule",
        "schedule",
        "io_schedule",
        "preempt_schedule",
        "__cond_resched",
        "wait_for_completion",
        "__wait_for_common",
        "wait_for_common",
        "__wait_on_bit",
        "out_of_line_wait_on_bit",
        "bit_wait",
    ];
    function.module == KERNEL && STARTS.iter().any(|start| function.name.starts_with(start))
}

/// The function that says where a thread waits: the innermost of the program, else the innermost that is not the
/// scheduler's. The functions are a stack's, innermost first.
pub fn waits_in<'f>(functions: impl Iterator<Item = &'f Function> + Clone) -> Option<&'f Function> {
    let own = functions.clone().find(|f| !is_runtime(f));
    own.or_else(|| functions.clone().find(|f| !is_scheduler(f)))
        .or_else(|| functions.clone().next())
}

/// One thread at one place: a row of a pool.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) thread: usize,
    /// Root first, without the C library's and the standard libraries' functions at the leaf.
    pub(crate) path: Cow<'a, [FunctionId]>,
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

/// Rows that go on with the same function, by their indices.
#[derive(Default)]
struct Branch {
    rows: Vec<usize>,
    /// Observations of waits that may be idle.
    n_waits: u64,
    /// Observations of work.
    work: u64,
}

/// What the rows of one pool show, in their order. `Unknown` for those that are no wait.
pub(crate) fn places(seen: &[Seen<'_>]) -> Vec<Place> {
    let mut found = vec![Place::Unknown; seen.len()];
    let is_wait = |row: &Seen<'_>| row.may_be_idle && row.path.len() <= MAX_DEPTH;
    let waits = seen.iter().filter(|row| is_wait(row));
    let wait_paths: HashSet<&[FunctionId]> = waits.map(|row| &*row.path).collect();
    // What enters or leaves a wait itself is no work.
    let enters_wait = |row: &Seen<'_>| row.in_library && wait_paths.contains(&*row.path);
    let works = |row: &Seen<'_>| !row.may_be_idle && !enters_wait(row);
    let counts = |at: &usize| is_wait(&seen[*at]) || works(&seen[*at]);
    // Rows that share their first `depth` functions; each is looked at once a depth.
    let rows = (0..seen.len()).filter(counts).collect::<Vec<_>>();
    let mut groups: Vec<(usize, Vec<usize>)> = kinds(seen, rows).map(|rows| (0, rows)).collect();
    while let Some((depth, rows)) = groups.pop() {
        let mut branches: BTreeMap<Option<FunctionId>, Branch> = BTreeMap::new();
        for at in rows {
            let row = &seen[at];
            let branch = branches.entry(row.path.get(depth).copied()).or_default();
            let sum = match row.may_be_idle {
                true => &mut branch.n_waits,
                false => &mut branch.work,
            };
            *sum = sum.saturating_add(row.n);
            branch.rows.push(at);
        }
        let quiet = quiet_branches(&branches, seen);
        for (function, branch) in branches {
            let place = match &quiet {
                None if function.is_some() && branch.n_waits > 0 => {
                    groups.push((depth + 1, branch.rows));
                    continue;
                }
                None => Place::Unknown,
                Some(quiet) if quiet.contains(&function) => Place::Loop,
                Some(_) => Place::InWork,
            };
            for at in branch.rows.into_iter().filter(|&at| seen[at].may_be_idle) {
                found[at] = place;
            }
        }
    }
    found
}

/// The rows of threads of one kind: those whose stacks begin alike, or that are linked by threads which do. A main thread
/// and its workers may have one name; the loop of the one is not that of the others. Stacks of one thread may begin in
/// several ways: in its loop, and in coroutines that it runs.
fn kinds(seen: &[Seen<'_>], rows: Vec<usize>) -> impl Iterator<Item = Vec<usize>> {
    // By thread, a thread of its kind that comes before it, or itself.
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut of_root: BTreeMap<Option<FunctionId>, usize> = BTreeMap::new();
    for row in rows.iter().map(|&at| &seen[at]) {
        let root = row.path.first().copied();
        let other = *of_root.entry(root).or_insert(row.thread);
        let (a, b) = (first(&mut before, other), first(&mut before, row.thread));
        before.insert(a.max(b), a.min(b));
    }
    let mut kinds: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in rows {
        let kind = first(&mut before, seen[at].thread);
        kinds.entry(kind).or_default().push(at);
    }
    kinds.into_values()
}

/// The first thread of a thread's kind. Halves the way there, so that long ways cannot be forged.
fn first(before: &mut BTreeMap<usize, usize>, mut thread: usize) -> usize {
    let next = |before: &BTreeMap<usize, usize>, at| before.get(&at).copied().unwrap_or(at);
    loop {
        let near = next(before, thread);
        let far = next(before, near);
        if near == thread {
            return thread;
        }
        before.insert(thread, far);
        thread = far;
    }
}

/// The branches in which a dispatch loop waits for work, `None` being the loop itself. It calls a
/// function that works, and the threads that work there also wait in these branches. `None` for a
/// function that is no dispatch loop.
fn quiet_branches(
    branches: &BTreeMap<Option<FunctionId>, Branch>,
    seen: &[Seen<'_>],
) -> Option<HashSet<Option<FunctionId>>> {
    let called = branches.iter().filter(|(function, _)| function.is_some());
    let busiest = called.map(|(_, branch)| branch).max_by_key(|b| b.work)?;
    let is_quiet = |function: &Option<FunctionId>, branch: &Branch| {
        let works = function.is_some() && branch.work.saturating_mul(QUIET) > busiest.work;
        branch.n_waits > 0 && !works
    };
    let quiet = || branches.iter().filter(|(f, branch)| is_quiet(f, branch));
    let n_waits = quiet().fold(0_u64, |n, (_, branch)| n.saturating_add(branch.n_waits));
    if busiest.work < MIN_WORK || n_waits < MIN_WAITS {
        return None;
    }
    let rows = |branch: &Branch, waits: bool| {
        let rows = branch.rows.iter().map(|&at| &seen[at]);
        rows.filter(move |row| row.may_be_idle == waits)
            .collect::<Vec<_>>()
    };
    let waiting = quiet().flat_map(|(_, branch)| rows(branch, true));
    let waiting: HashSet<usize> = waiting.map(|row| row.thread).collect();
    let working = rows(busiest, false).into_iter();
    let of_waiting = working
        .filter(|row| waiting.contains(&row.thread))
        .fold(0_u64, |n, row| n.saturating_add(row.n));
    (of_waiting.saturating_mul(2) >= busiest.work)
        .then(|| quiet().map(|(function, _)| *function).collect())
}
