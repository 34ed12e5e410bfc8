//! A profile to the weight of each function, self and total.

use std::collections::{HashMap, HashSet};

use crate::model::{FunctionId, Profile};
use crate::precision::{Course, Estimator, Interval};
use crate::prepared::Prepared;
use crate::tree::{Group, GroupKey, assign};
use crate::view::{GroupBy, View};
use crate::weight_sum::WeightSum;

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
        let estimator = estimator.as_ref();
        let course = estimator.map_or_else(Course::default, |e| e.course(&row.slices));
        sums.observed.add(row, &course);
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
            let [leaf, total] = sums.functions.entry(function).or_default();
            total.add(row, &course);
            if depth == 0 {
                leaf.add(row, &course);
            }
        }
    }
    let mut list: Vec<FunctionGroup> = groups
        .into_iter()
        .zip(sums)
        .filter(|(_, sums)| sums.observed.weight > 0)
        .map(|(group, sums)| FunctionGroup {
            key: group.key,
            threads: group.threads,
            observed: sums.observed.weight,
            shown: sums.shown,
            functions: functions(profile, &sums, estimator.as_ref()),
        })
        .collect();
    list.sort_by(|a, b| {
        b.shown
            .cmp(&a.shown)
            .then_with(|| a.threads.first().cmp(&b.threads.first()))
    });
    list
}

/// By total weight (heaviest first), then by name.
fn functions(profile: &Profile, sums: &Sums, estimator: Option<&Estimator>) -> Vec<FunctionWeight> {
    let interval = |sum: &WeightSum| {
        let whole = &sums.observed;
        Some(estimator?.interval(sum.weight, &sum.course, whole.weight, &whole.course))
    };
    let weight = |(&function, [leaf, total]): (&FunctionId, &[WeightSum; 2])| FunctionWeight {
        function,
        self_weight: leaf.weight,
        total_weight: total.weight,
        self_samples: leaf.n_samples,
        total_samples: total.n_samples,
        self_interval: interval(leaf),
        total_interval: interval(total),
    };
    let mut functions: Vec<_> = sums.functions.iter().map(weight).collect();
    let name = |f: &FunctionWeight| {
        let function = profile.functions.get(f.function.0 as usize);
        function.map(|f| (&f.name, &f.module))
    };
    functions.sort_by(|a, b| {
        b.total_weight
            .cmp(&a.total_weight)
            .then_with(|| name(a).cmp(&name(b)))
    });
    functions
}

/// Sums of one group.
#[derive(Default)]
struct Sums {
    observed: WeightSum,
    shown: u64,
    /// By function: where it is the leaf, and where it is anywhere in the stack.
    functions: HashMap<FunctionId, [WeightSum; 2]>,
}
