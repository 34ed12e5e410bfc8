//! CPU time by kind of work: malloc, AES, checksums, sockets. The kinds are rules.

use std::cmp::Reverse;
use std::collections::HashMap;

use wcprof_trace::FastState;

use crate::model::{FunctionId, Profile, State};
use crate::places::is_runtime;
use crate::rules::Rules;

/// The CPU time of one kind of work.
#[derive(Clone, PartialEq, Debug)]
pub struct CategoryTime {
    /// As the rule names it; `None` for what no rule covers.
    pub name: Option<String>,
    /// Nanoseconds on a CPU.
    pub weight: u64,
    /// Observations it stands on.
    pub n_samples: u64,
    /// The program's functions that ask for it, with their share of `weight`, the largest first. For
    /// what no rule covers: the functions themselves.
    pub callers: Vec<(FunctionId, u64)>,
}

/// The time of a profile in [`State::OnCpu`] by category, the largest first. Of a stack the innermost
/// function that a category names decides.
pub fn cpu_by_category(profile: &Profile, rules: &Rules) -> Vec<CategoryTime> {
    let functions = profile.functions.iter();
    let category_of: Vec<Option<&str>> = functions
        .map(|function| rules.category(&function.name, &function.module))
        .collect();
    let at = |function: FunctionId| category_of.get(function.0 as usize).copied().flatten();
    let is_program = |function: FunctionId| {
        let function = profile.functions.get(function.0 as usize);
        function.is_some_and(|function| !is_runtime(function))
    };
    let mut sums: HashMap<Option<&str>, (CategoryTime, HashMap<FunctionId, u64, FastState>)> =
        HashMap::new();
    for row in profile.rows.iter().filter(|row| row.state == State::OnCpu) {
        let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let leaf = frames.iter().rposition(|&f| at(f).is_some());
        let category = leaf.and_then(|leaf| at(frames[leaf]));
        let above = &frames[..leaf.unwrap_or(frames.len())];
        let caller = above
            .iter()
            .rev()
            .find(|&&f| is_program(f) && (at(f) != category || leaf.is_none()));
        let (sum, callers) = sums.entry(category).or_insert_with(|| {
            let empty = CategoryTime {
                name: category.map(str::to_owned),
                weight: 0,
                n_samples: 0,
                callers: Vec::new(),
            };
            (empty, HashMap::default())
        });
        sum.weight = sum.weight.saturating_add(row.weight);
        sum.n_samples = sum.n_samples.saturating_add(row.n_samples);
        if let Some(&caller) = caller {
            *callers.entry(caller).or_default() += row.weight;
        }
    }
    let sums = sums.into_values().map(|(sum, callers)| {
        let mut callers: Vec<(FunctionId, u64)> = callers.into_iter().collect();
        callers.sort_unstable_by_key(|&(function, weight)| (Reverse(weight), function));
        CategoryTime { callers, ..sum }
    });
    let mut sums: Vec<CategoryTime> = sums.collect();
    sums.sort_by(|a, b| (b.weight, &a.name).cmp(&(a.weight, &b.name)));
    sums
}
