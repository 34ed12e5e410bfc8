//! A profile to the weight of each function, self and total.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::model::{FunctionId, Profile};
use crate::precision::{Course, Estimator, Interval};
use crate::prepared::Prepared;
use crate::tree::{GroupKey, assign};
use crate::view::View;
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

/// The functions of what `view` shows, by group, most shown time first. Direction and pruning of
/// the view do not matter here; of a tree around one function, its functions are those of the
/// stacks between root or leaf and that function.
pub fn function_groups(profile: &Profile, view: &View) -> Vec<FunctionGroup> {
    let (groups, group_of) = assign(profile, view);
    let prepared = Prepared::new(profile, view);
    let estimator = profile.estimator();
    let mut sums = vec![Sums::default(); groups.len()];
    let mut seen = HashSet::new();
    for row in &profile.rows {
        let Some(group) = group_of[row.thread] else {
            continue;
        };
        let sums = &mut sums[group];
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
    list.sort_by_key(|group| (Reverse(group.shown), group.threads.first().copied()));
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
        self_interval: interval(leaf),
        total_interval: interval(total),
    };
    let mut functions: Vec<_> = sums.functions.iter().map(weight).collect();
    functions.sort_by_cached_key(|f| {
        let function = &profile.functions[f.function.0 as usize];
        (Reverse(f.total_weight), &function.name, &function.module)
    });
    functions
}

/// Sums of one group.
#[derive(Clone, Default)]
struct Sums {
    observed: WeightSum,
    shown: u64,
    /// By function: where it is the leaf, and where it is anywhere in the stack.
    functions: HashMap<FunctionId, [WeightSum; 2]>,
}
