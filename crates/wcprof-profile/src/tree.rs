//! A profile to call trees: grouped, filtered, root first or leaf first, pruned, in a fixed order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};

use indexmap::IndexMap;
use rayon::prelude::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use wcprof_trace::FastState;
use wcprof_types::StackEnd;

use crate::label::Label;
use crate::model::{Profile, ProfileStackId, Row, State};
use crate::precision::{Course, Estimator, Interval};
use crate::prepared::Prepared;
use crate::view::{GroupBy, View};

/// Nodes that all trees of a view have together, before any is pruned. Recordings have far fewer; this bounds what a
/// forged trace can cost, whose threads share long stacks.
const MAX_NODES: usize = 1 << 24;

/// Whose tree it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum GroupKey {
    /// Index into [`Profile::threads`].
    Thread(usize),
    /// A pool's name.
    Pool(String),
    /// Index into [`Profile::processes`].
    Process(usize),
    /// A host's name.
    Host(String),
    /// A control group, by its path; empty when the trace holds none.
    Cgroup(String),
    /// Everything.
    #[default]
    All,
}

/// A node of a tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What it stands for.
    pub label: Label,
    /// Index of its parent in [`Group::nodes`]; `None` for a root.
    pub parent: Option<usize>,
    /// Indices of its children, heaviest first, then by name; what was pruned comes last.
    pub children: Vec<usize>,
    /// Wall-clock time of the paths through this node, ns.
    pub weight: u64,
    /// Wall-clock time of the paths that end here, ns.
    pub self_weight: u64,
    /// Observations that `weight` stands on.
    pub n_samples: u64,
    /// `weight` by state, in the order of [`State::ALL`].
    pub states: [u64; State::ALL.len()],
    /// 95 % confidence interval of `weight`, in the group's observed time; `None` when the
    /// recording is too short for one.
    pub interval: Option<Interval>,
}

/// One tree and whose it is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Group {
    /// Whose tree.
    pub key: GroupKey,
    /// The threads in it, as indices into [`Profile::threads`].
    pub threads: Vec<usize>,
    /// Time shown, ns: the sum of the roots' weights.
    pub weight: u64,
    /// Observations that `weight` stands on.
    pub n_samples: u64,
    /// Time of the group's threads by state, shown or not, in the order of [`State::ALL`].
    pub states: [u64; State::ALL.len()],
    /// All nodes; a node comes after its parent.
    pub nodes: Vec<Node>,
    /// Indices of the roots, heaviest first, then by name.
    pub roots: Vec<usize>,
    /// Rows of the profile that are shown here, each with the node that its path ends at.
    pub rows: Vec<(usize, usize)>,
}

impl Group {
    /// All time of the group's threads, shown or not, ns.
    pub fn observed(&self) -> u64 {
        self.states.iter().fold(0, |sum, w| sum.saturating_add(*w))
    }

    /// Depth-first order: the index of each node, the node, and its depth (0 for a root).
    pub fn walk(&self) -> impl Iterator<Item = (usize, &Node, usize)> {
        let roots = self.roots.iter().rev();
        let mut next: Vec<(usize, usize)> = roots.map(|&root| (root, 0)).collect();
        iter::from_fn(move || {
            let (at, depth) = next.pop()?;
            let node = self.nodes.get(at)?;
            let children = node.children.iter().rev();
            next.extend(children.map(|&child| (child, depth + 1)));
            Some((at, node, depth))
        })
    }
}

/// The trees of a view, heaviest group first.
#[derive(Clone, PartialEq, Debug)]
pub struct Trees {
    /// One for each group that has any time, shown or not.
    pub groups: Vec<Group>,
    /// The view's limit, for the text of [`Label::Below`].
    pub min_percent: f64,
}

impl Trees {
    /// Builds the trees, side by side on all CPUs. If they had far too many nodes, small ones are whole, and each of the
    /// others has its part of the rest: paths for which there is no more room end there, truncated.
    pub fn new(profile: &Profile, view: &View) -> Self {
        Self::with_nodes(profile, view, MAX_NODES)
    }

    /// The same with at most so many nodes, and as many ends of truncated paths.
    fn with_nodes(profile: &Profile, view: &View, most: usize) -> Self {
        let (mut groups, group_of) = assign(profile, view);
        let mut rows_of = vec![Vec::new(); groups.len()];
        for (at, row) in profile.rows.iter().enumerate() {
            if let Some(group) = group_of[row.thread] {
                rows_of[group].push(at);
            }
        }
        let prepared = Prepared::new(profile, view);
        let estimator = profile.estimator();
        let make_all = |groups: &mut [Group], most: &[usize], together: Option<&AtomicUsize>| {
            let groups = groups.par_iter_mut().zip(&rows_of).zip(most);
            groups.for_each(|((group, rows), &most)| {
                let alone = AtomicUsize::new(0);
                let paths = Paths::new(most, together.unwrap_or(&alone));
                make(group, rows, &prepared, estimator.as_ref(), paths);
            });
        };
        let n_nodes = AtomicUsize::new(0);
        make_all(&mut groups, &vec![most; rows_of.len()], Some(&n_nodes));
        if n_nodes.into_inner() > most {
            // Which tree is made first must not matter.
            groups = assign(profile, view).0;
            let wanted = rows_of.iter().map(|rows| most_nodes(profile, rows));
            make_all(&mut groups, &parts(wanted.collect(), most), None);
        }
        groups.retain(|g| g.observed() > 0);
        groups.sort_by_key(|group| (Reverse(group.weight), group.threads.first().copied()));
        Self {
            groups,
            min_percent: view.min_percent,
        }
    }
}

/// As many nodes as paths of these rows can have.
fn most_nodes(profile: &Profile, rows: &[usize]) -> usize {
    // The end of its stack, its file and its state.
    const MORE: usize = 3;
    let stacks = rows.iter().map(|&row| profile.rows[row].stack);
    let frames = stacks.map(|id| id.map_or(0, |id| profile.stacks[id.0 as usize].frames.len()));
    frames.map(|n| n + MORE).sum()
}

/// What each of those who want so much gets of what there is: little is given whole.
fn parts(wanted: Vec<usize>, mut left: usize) -> Vec<usize> {
    let mut parts = wanted;
    let mut by_size: Vec<usize> = (0..parts.len()).collect();
    by_size.sort_by_key(|&at| parts[at]);
    for (n_before, at) in by_size.into_iter().enumerate() {
        parts[at] = parts[at].min(left / (parts.len() - n_before));
        left -= parts[at];
    }
    parts
}

/// Makes the tree of a group of these rows.
fn make(
    group: &mut Group,
    rows: &[usize],
    prepared: &Prepared<'_>,
    estimator: Option<&Estimator>,
    mut paths: Paths<'_>,
) {
    let (profile, min_percent) = (prepared.profile, prepared.view.min_percent);
    // Of the group's observed time.
    let mut course = Course::default();
    for &at in rows {
        let row = &profile.rows[at];
        add(&mut group.states[row.state as usize], row.weight);
        if let Some(estimator) = estimator {
            course.add(&estimator.course(&row.slices));
        }
        if row.weight == 0 {
            continue;
        }
        let Some(end) = paths.end(&mut group.nodes, row, prepared) else {
            continue;
        };
        add(&mut group.weight, row.weight);
        add(&mut group.n_samples, row.n_samples);
        let node = &mut group.nodes[end];
        add(&mut node.weight, row.weight);
        add(&mut node.self_weight, row.weight);
        add(&mut node.n_samples, row.n_samples);
        add(&mut node.states[row.state as usize], row.weight);
        group.rows.push((at, end));
    }
    sum_up(group);
    if min_percent > 0.0 {
        prune(group, min_percent);
    }
    if let Some(estimator) = estimator {
        intervals(group, profile, estimator, &course);
    }
    link(group, profile, min_percent);
}

/// The nodes of a group's paths so far, and the ends of those that rows have.
struct Paths<'a> {
    /// Nodes by parent and label.
    nodes: HashMap<(Option<usize>, Label), usize, FastState>,
    /// By all that a path depends on; `None` when the view does not show it.
    ends: HashMap<PathKey, Option<usize>, FastState>,
    labels: Vec<Label>,
    /// How many nodes there may be.
    most: usize,
    /// How many there are, here and where the same is counted.
    n_nodes: &'a AtomicUsize,
}

type PathKey = (State, Option<ProfileStackId>, Option<u32>);

impl<'a> Paths<'a> {
    fn new(most: usize, n_nodes: &'a AtomicUsize) -> Self {
        Self {
            nodes: HashMap::default(),
            ends: HashMap::default(),
            labels: Vec::new(),
            most,
            n_nodes,
        }
    }

    /// The node at the end of a row's path, made if it is new; `None` when the view does not show the row.
    fn end(&mut self, nodes: &mut Vec<Node>, row: &Row, prepared: &Prepared<'_>) -> Option<usize> {
        let key = (row.state, row.stack, row.wait);
        if let Some(&known) = self.ends.get(&key) {
            return known;
        }
        let mut end = None;
        if prepared.path(row, &mut self.labels) {
            let n_before = nodes.len();
            let room = self
                .most
                .saturating_sub(self.n_nodes.load(Ordering::Relaxed));
            for &label in &self.labels {
                let fits = nodes.len() - n_before < room || self.nodes.contains_key(&(end, label));
                let label = match fits {
                    true => label,
                    false => Label::End(StackEnd::TooManyFrames),
                };
                let node = *self.nodes.entry((end, label)).or_insert_with(|| {
                    nodes.push(Node::new(label, end));
                    nodes.len() - 1
                });
                end = Some(node);
                if !fits {
                    break;
                }
            }
            let n_new = nodes.len() - n_before;
            self.n_nodes.fetch_add(n_new, Ordering::Relaxed);
        }
        self.ends.insert(key, end);
        end
    }
}

/// Adds to each node what its descendants have: so far it has what ends there.
fn sum_up(group: &mut Group) {
    // A node comes after its parent.
    for at in (0..group.nodes.len()).rev() {
        let node = &group.nodes[at];
        if let Some(parent) = node.parent {
            let (weight, n_samples, states) = (node.weight, node.n_samples, node.states);
            group.nodes[parent].add(weight, n_samples, &states);
        }
    }
}

impl Node {
    fn new(label: Label, parent: Option<usize>) -> Self {
        Self {
            label,
            parent,
            children: Vec::new(),
            weight: 0,
            self_weight: 0,
            n_samples: 0,
            states: [0; State::ALL.len()],
            interval: None,
        }
    }

    fn add(&mut self, weight: u64, n_samples: u64, states: &[u64; State::ALL.len()]) {
        add(&mut self.weight, weight);
        add(&mut self.n_samples, n_samples);
        for (sum, weight) in self.states.iter_mut().zip(states) {
            add(sum, *weight);
        }
    }
}

fn add(sum: &mut u64, weight: u64) {
    *sum = sum.saturating_add(weight);
}

/// Gives each node its confidence interval.
fn intervals(group: &mut Group, profile: &Profile, estimator: &Estimator, whole: &Course) {
    let observed = group.observed();
    let mut courses = vec![Course::default(); group.nodes.len()];
    for &(row, end) in &group.rows {
        courses[end].add(&estimator.course(&profile.rows[row].slices));
    }
    // A node comes after its parent.
    for at in (0..group.nodes.len()).rev() {
        let (course, node) = (courses[at], &mut group.nodes[at]);
        node.interval = Some(estimator.interval(node.weight, &course, observed, whole));
        if let Some(parent) = node.parent {
            courses[parent].add(&course);
        }
    }
}

/// Makes the groups; gives the group of each thread, `None` for threads that are not shown.
pub(crate) fn assign(profile: &Profile, view: &View) -> (Vec<Group>, Vec<Option<usize>>) {
    let mut groups: IndexMap<GroupKey, Vec<usize>> = IndexMap::new();
    let mut group_of = vec![None; profile.threads.len()];
    for (at, thread) in profile.threads.iter().enumerate() {
        if !view.threads.matches(profile, thread) {
            continue;
        }
        let process = profile.process_of(thread);
        let key = match view.by {
            GroupBy::Thread => GroupKey::Thread(at),
            GroupBy::Pool => {
                let pool = profile.pools.get(thread.pool);
                GroupKey::Pool(pool.map_or(&thread.comm, |p| &p.name).clone())
            }
            GroupBy::Process => GroupKey::Process(thread.process),
            GroupBy::Host => GroupKey::Host(process.map(|p| p.host.clone()).unwrap_or_default()),
            GroupBy::Cgroup => {
                GroupKey::Cgroup(process.map(|p| p.cgroup.clone()).unwrap_or_default())
            }
            GroupBy::All => GroupKey::All,
        };
        let group = groups.entry(key);
        group_of[at] = Some(group.index());
        group.or_default().push(at);
    }
    let groups = groups.into_iter().map(|(key, threads)| Group {
        key,
        threads,
        ..Group::default()
    });
    (groups.collect(), group_of)
}

/// Merges the nodes below the limit into one node for each parent.
fn prune(group: &mut Group, min_percent: f64) {
    let limit = group.weight as f64 * min_percent / 100.0;
    let mut kept: Vec<Node> = Vec::new();
    // Where each node went, and whether it is below the limit.
    let mut target: Vec<(usize, bool)> = Vec::with_capacity(group.nodes.len());
    let mut below: HashMap<Option<usize>, usize> = HashMap::new();
    for mut node in std::mem::take(&mut group.nodes) {
        // A parent comes before its children, so that its place is known.
        let parent = node.parent.map(|p| target[p]);
        if let Some((_, true)) = parent {
            target.extend(parent);
            continue;
        }
        node.parent = parent.map(|(at, _)| at);
        if (node.weight as f64) >= limit {
            target.push((kept.len(), false));
            kept.push(node);
            continue;
        }
        let at = *below.entry(node.parent).or_insert_with(|| {
            kept.push(Node::new(Label::Below, node.parent));
            kept.len() - 1
        });
        kept[at].add(node.weight, node.n_samples, &node.states);
        add(&mut kept[at].self_weight, node.weight);
        target.push((at, true));
    }
    group.nodes = kept;
    for (_, end) in &mut group.rows {
        *end = target[*end].0;
    }
}

/// Fills in children and roots, in order.
fn link(group: &mut Group, profile: &Profile, min_percent: f64) {
    let mut children = vec![Vec::new(); group.nodes.len()];
    let mut roots = Vec::new();
    for (at, node) in group.nodes.iter().enumerate() {
        match node.parent {
            Some(parent) => children[parent].push(at),
            None => roots.push(at),
        }
    }
    let order = |list: &mut Vec<usize>| {
        list.sort_by(|&a, &b| {
            let (a, b) = (&group.nodes[a], &group.nodes[b]);
            let is_below = |node: &Node| node.label == Label::Below;
            let last = is_below(a).cmp(&is_below(b));
            last.then(b.weight.cmp(&a.weight)).then_with(|| {
                a.label
                    .text(profile, min_percent)
                    .cmp(&b.label.text(profile, min_percent))
            })
        });
    };
    order(&mut roots);
    children.iter_mut().for_each(order);
    group.roots = roots;
    for (node, children) in group.nodes.iter_mut().zip(children) {
        node.children = children;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Function, FunctionId, ProfileStack, ProfileThread, Reason};
    use crate::slices::Slices;
    use wcprof_types::{Pid, Tid};

    /// Check that trees of threads that share a long stack have a bounded number of nodes and all of the time, and that
    /// those with room for all nodes are whole.
    #[test]
    fn bounded() {
        const N_THREADS: usize = 50;
        const N_FUNCTIONS: usize = 1_000;
        let thread = |tid: usize| ProfileThread {
            process: 0,
            pid: Pid(1),
            process_comm: String::new(),
            tid: Tid(tid as i32),
            comm: String::new(),
            pool: 0,
            n_ticks: 0,
            observed_ns: 0,
        };
        let row = |thread: usize| Row {
            thread,
            state: State::OnCpu,
            reason: Reason::Kernel,
            stack: Some(ProfileStackId(0)),
            wait: None,
            weight: 10,
            n_samples: 1,
            slices: Slices::default(),
        };
        let profile = Profile {
            functions: vec![Function::default(); N_FUNCTIONS],
            stacks: vec![ProfileStack {
                frames: (0..N_FUNCTIONS as u32).map(FunctionId).collect(),
                end: StackEnd::Root,
            }],
            threads: (0..N_THREADS).map(thread).collect(),
            rows: (0..N_THREADS).map(row).collect(),
            ..Profile::default()
        };
        let view = View {
            by: GroupBy::Thread,
            min_percent: 0.0,
            state_frames: false,
            ..View::default()
        };
        let n_nodes = |trees: &Trees| trees.groups.iter().map(|g| g.nodes.len()).sum::<usize>();
        let whole = Trees::new(&profile, &view);
        assert_eq!(n_nodes(&whole), N_THREADS * N_FUNCTIONS);
        assert_eq!(Trees::with_nodes(&profile, &view, n_nodes(&whole)), whole);
        for most in [0, 60, 10_000, n_nodes(&whole) - 1] {
            let cut = Trees::with_nodes(&profile, &view, most);
            assert!(n_nodes(&cut) <= most + N_THREADS, "{most}");
            let part = most / N_THREADS;
            for group in &cut.groups {
                let (_, last, depth) = group.walk().last().expect("a node");
                let is_cut = last.label == Label::End(StackEnd::TooManyFrames);
                assert!(is_cut || depth == N_FUNCTIONS - 1, "{most}: {depth}");
                assert!((part..=part + 1).contains(&depth), "{most}: {depth}");
                assert_eq!((group.weight, last.self_weight), (10, 10));
            }
            assert_ne!(cut, whole);
        }
    }

    /// Check that what small groups leave goes to the large ones.
    #[test]
    fn parts_by_size() {
        assert_eq!(parts(vec![100, 0, 3, 50], 83), [40, 0, 3, 40]);
        assert_eq!(parts(vec![1, 2], 9), [1, 2]);
        assert!(parts(vec![], 9).is_empty());
    }
}
