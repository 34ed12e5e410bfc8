//! A profile to call trees: grouped, filtered, root first or leaf first, pruned, in a fixed order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::iter;

use indexmap::IndexMap;
use rayon::prelude::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use wcprof_trace::FastState;

use crate::label::Label;
use crate::model::{Profile, ProfileStackId, Row, State};
use crate::precision::{Course, Estimator, Interval};
use crate::prepared::Prepared;
use crate::view::{GroupBy, View};

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
    /// Builds the trees, side by side on all CPUs.
    pub fn new(profile: &Profile, view: &View) -> Self {
        let (mut groups, group_of) = assign(profile, view);
        let mut rows_of = vec![Vec::new(); groups.len()];
        for (at, row) in profile.rows.iter().enumerate() {
            if let Some(group) = group_of[row.thread] {
                rows_of[group].push(at);
            }
        }
        let prepared = Prepared::new(profile, view);
        let estimator = profile.estimator();
        groups
            .par_iter_mut()
            .zip(&rows_of)
            .for_each(|(group, rows)| make(group, rows, &prepared, estimator.as_ref()));
        groups.retain(|g| g.observed() > 0);
        groups.sort_by_key(|group| (Reverse(group.weight), group.threads.first().copied()));
        Self {
            groups,
            min_percent: view.min_percent,
        }
    }
}

/// Makes the tree of a group of these rows.
fn make(group: &mut Group, rows: &[usize], prepared: &Prepared<'_>, estimator: Option<&Estimator>) {
    let (profile, min_percent) = (prepared.profile, prepared.view.min_percent);
    // Of the group's observed time.
    let mut course = Course::default();
    let mut paths = Paths::default();
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
#[derive(Default)]
struct Paths {
    /// Nodes by parent and label.
    nodes: HashMap<(Option<usize>, Label), usize, FastState>,
    /// By all that a path depends on; `None` when the view does not show it.
    ends: HashMap<PathKey, Option<usize>, FastState>,
    labels: Vec<Label>,
}

type PathKey = (State, Option<ProfileStackId>, Option<u32>);

impl Paths {
    /// The node at the end of a row's path, made if it is new; `None` when the view does not show the row.
    fn end(&mut self, nodes: &mut Vec<Node>, row: &Row, prepared: &Prepared<'_>) -> Option<usize> {
        let key = (row.state, row.stack, row.wait);
        if let Some(&known) = self.ends.get(&key) {
            return known;
        }
        let mut end = None;
        if prepared.path(row, &mut self.labels) {
            for &label in &self.labels {
                let node = *self.nodes.entry((end, label)).or_insert_with(|| {
                    nodes.push(Node::new(label, end));
                    nodes.len() - 1
                });
                end = Some(node);
            }
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
