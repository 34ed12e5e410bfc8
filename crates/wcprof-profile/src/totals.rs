//! A profile to the weight of each function, self and total.

use std::collections::{HashMap, HashSet};

use crate::model::{FunctionId, Profile};
use crate::precision::{Course, Interval};
use crate::prepared::Prepared;
use crate::tree::{Group, GroupKey, assign};
use crate::view::{GroupBy, View};

/// The weight of one function.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FunctionWeight {
    /// The function.
    pub function: FunctionId,
    /// Time in which it was the leaf, ns.
    pub self_weight: u64,
    /// Time in which it was anywhere in the stack, ns; recursion counted once.
    pub total_weight: u64,
    /// Observations that `self_weight` stands on.
    pub self_samples: u64,
    /// Observations that `total_weight` stands on.
    pub total_samples: u64,
    /// 95 % confidence interval of `self_weight`; `None` when the recording is too short for one.
    pub self_interval: Option<Interval>,
    /// That of `total_weight`.
    pub total_interval: Option<Interval>,
}

/// The functions of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionGroup {
    /// Whose time.
    pub key: GroupKey,
    /// The threads in it, as indices into [`Profile::threads`].
    pub threads: Vec<usize>,
    /// Time of the group's threads, shown or not, ns.
    pub observed: u64,
    /// Time that the view shows, ns.
    pub shown: u64,
    /// By total weight (heaviest first), then by name.
    pub functions: Vec<FunctionWeight>,
}

/// The functions of what `view` shows, over all its groups. Grouping, direction and pruning of the
/// view do not matter here.
pub fn function_weights(profile: &Profile, view: &View) -> Vec<FunctionWeight> {
    let all = View {
        by: GroupBy::All,
        ..view.clone()
    };
    let groups = function_groups(profile, &all);
    groups.into_iter().flat_map(|g| g.functions).collect()
}

/// The functions of what `view` shows, by group, most shown time first. Direction and pruning of
/// the view do not matter here; of a tree around one function, its functions are those of the
/// stacks between root or leaf and that function.
pub fn function_groups(profile: &Profile, view: &View) -> Vec<FunctionGroup> {
    let mut groups: Vec<Group> = Vec::new();
    let group_of = assign(profile, view, &mut groups);
    let prepared = Prepared::new(profile, view);
    let estimator = profile.estimator();
    let mut sums: Vec<Sums> = groups.iter().map(|_| Sums::default()).collect();
    let mut seen = HashSet::new();
    for row in &profile.rows {
        let Some(&Some(g)) = group_of.get(row.thread) else {
            continue;
        };
        let sums = &mut sums[g];
        let course = estimator
            .as_ref()
            .map_or_else(Course::default, |e| e.course(&row.slices));
        sums.observed = sums.observed.saturating_add(row.weight);
        sums.course.add(&course);
        let Some((_, frames)) = prepared.frames(row) else {
            continue;
        };
        sums.shown = sums.shown.saturating_add(row.weight);
        seen.clear();
        let shown = frames.iter().rev().filter(|&&f| !prepared.hides(f));
        for (depth, &function) in shown.enumerate() {
            if !seen.insert(function) {
                continue;
            }
            let sum = sums.functions.entry(function).or_default();
            sum.total.add(row.weight, row.n_samples, &course);
            if depth == 0 {
                sum.leaf.add(row.weight, row.n_samples, &course);
            }
        }
    }
    let mut list: Vec<FunctionGroup> = groups
        .into_iter()
        .zip(sums)
        .filter(|(_, sums)| sums.observed > 0)
        .map(|(group, sums)| {
            let interval = |sum: &Sum| {
                let whole = (sums.observed, &sums.course);
                let estimator = estimator.as_ref()?;
                Some(estimator.interval(sum.weight, &sum.course, whole.0, whole.1))
            };
            let mut functions: Vec<_> = sums
                .functions
                .iter()
                .map(|(&function, f)| FunctionWeight {
                    function,
                    self_weight: f.leaf.weight,
                    total_weight: f.total.weight,
                    self_samples: f.leaf.n_samples,
                    total_samples: f.total.n_samples,
                    self_interval: interval(&f.leaf),
                    total_interval: interval(&f.total),
                })
                .collect();
            sort(profile, &mut functions);
            FunctionGroup {
                key: group.key,
                threads: group.threads,
                observed: sums.observed,
                shown: sums.shown,
                functions,
            }
        })
        .collect();
    list.sort_by(|a, b| {
        b.shown
            .cmp(&a.shown)
            .then_with(|| a.threads.first().cmp(&b.threads.first()))
    });
    list
}

fn sort(profile: &Profile, functions: &mut [FunctionWeight]) {
    let name = |id: FunctionId| {
        profile
            .functions
            .get(id.0 as usize)
            .map(|f| (&f.name, &f.module))
    };
    functions.sort_by(|a, b| {
        b.total_weight
            .cmp(&a.total_weight)
            .then_with(|| name(a.function).cmp(&name(b.function)))
    });
}

#[derive(Default)]
struct Sums {
    observed: u64,
    shown: u64,
    course: Course,
    functions: HashMap<FunctionId, FunctionSums>,
}

#[derive(Default)]
struct FunctionSums {
    leaf: Sum,
    total: Sum,
}

#[derive(Default)]
struct Sum {
    weight: u64,
    n_samples: u64,
    course: Course,
}

impl Sum {
    fn add(&mut self, weight: u64, n_samples: u64, course: &Course) {
        self.weight = self.weight.saturating_add(weight);
        self.n_samples = self.n_samples.saturating_add(n_samples);
        self.course.add(course);
    }
}
