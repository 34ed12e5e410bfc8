//! A profile to the weight of each function, self and total.

use std::collections::{HashMap, HashSet};

use crate::model::{FunctionId, Profile};
use crate::tree::View;

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
}

/// The functions of what `view` shows, by total weight (heaviest first), then by name. Grouping,
/// direction and pruning of the view do not matter here.
pub fn function_weights(profile: &Profile, view: &View) -> Vec<FunctionWeight> {
    let shown: Vec<bool> = profile
        .threads
        .iter()
        .map(|thread| view.threads.matches(profile, thread))
        .collect();
    let mut sums: HashMap<FunctionId, FunctionWeight> = HashMap::new();
    let mut seen = HashSet::new();
    for row in &profile.rows {
        if !view.shows(row.state) || !shown.get(row.thread).copied().unwrap_or(false) {
            continue;
        }
        let Some(stack) = row.stack.and_then(|id| profile.stacks.get(id.0 as usize)) else {
            continue;
        };
        seen.clear();
        for (depth, &function) in stack.frames.iter().rev().enumerate() {
            if !seen.insert(function) {
                continue;
            }
            let sum = sums.entry(function).or_insert(FunctionWeight {
                function,
                self_weight: 0,
                total_weight: 0,
                self_samples: 0,
                total_samples: 0,
            });
            sum.total_weight = sum.total_weight.saturating_add(row.weight);
            sum.total_samples = sum.total_samples.saturating_add(row.n_samples);
            if depth == 0 {
                sum.self_weight = sum.self_weight.saturating_add(row.weight);
                sum.self_samples = sum.self_samples.saturating_add(row.n_samples);
            }
        }
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    let name = |id: FunctionId| {
        profile
            .functions
            .get(id.0 as usize)
            .map(|f| (&f.name, &f.module))
    };
    sums.sort_by(|a, b| {
        b.total_weight
            .cmp(&a.total_weight)
            .then_with(|| name(a.function).cmp(&name(b.function)))
    });
    sums
}
