//! CPU time by kind of work: malloc, AES, checksums, sockets. The kinds are rules.

use std::cmp::Reverse;
use std::collections::HashMap;

use wcprof_trace::FastState;

use crate::model::{FunctionId, Profile, Row, State};
use crate::places::is_runtime;
use crate::rules::Categories;

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
pub fn cpu_by_category(profile: &Profile, categories: &Categories) -> Vec<CategoryTime> {
    cpu_of_rows(profile, categories, profile.rows.iter())
}

/// The same of some rows.
pub(crate) fn cpu_of_rows<'p>(
    profile: &'p Profile,
    categories: &Categories,
    rows: impl Iterator<Item = &'p Row>,
) -> Vec<CategoryTime> {
    let work = Work::new(profile, categories);
    let is_program = |function: FunctionId| {
        let function = profile.functions.get(function.0 as usize);
        function.is_some_and(|function| !is_runtime(function))
    };
    let mut sums: HashMap<Option<&str>, Sum> = HashMap::new();
    for row in rows.filter(|row| row.state == State::OnCpu) {
        let stack = row.stack.and_then(|id| profile.stacks.get(id.0 as usize));
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let leaf = work.innermost(frames);
        let category = leaf.and_then(|leaf| work.of(frames[leaf]));
        let mut above = frames[..leaf.unwrap_or(frames.len())].iter().rev();
        let asks =
            |f: &&FunctionId| is_program(**f) && (category.is_none() || work.of(**f) != category);
        let sum = sums.entry(category).or_default();
        sum.weight = sum.weight.saturating_add(row.weight);
        sum.n_samples = sum.n_samples.saturating_add(row.n_samples);
        if let Some(&caller) = above.find(asks) {
            let of_caller = sum.callers.entry(caller).or_default();
            *of_caller = of_caller.saturating_add(row.weight);
        }
    }
    let times = sums.into_iter().map(|(category, sum)| {
        let mut callers: Vec<(FunctionId, u64)> = sum.callers.into_iter().collect();
        callers.sort_unstable_by_key(|&(function, weight)| (Reverse(weight), function));
        CategoryTime {
            name: category.map(str::to_owned),
            weight: sum.weight,
            n_samples: sum.n_samples,
            callers,
        }
    });
    let mut times: Vec<CategoryTime> = times.collect();
    times.sort_by(|a, b| (b.weight, &a.name).cmp(&(a.weight, &b.name)));
    times
}

/// The kinds of work of a profile's functions.
#[derive(Debug)]
pub(crate) struct Work<'c> {
    of: Vec<Option<&'c str>>,
}

impl<'c> Work<'c> {
    pub(crate) fn new(profile: &Profile, categories: &'c Categories) -> Self {
        let functions = profile.functions.iter();
        let of = functions.map(|function| categories.of(&function.name, &function.module));
        Self { of: of.collect() }
    }

    pub(crate) fn of(&self, function: FunctionId) -> Option<&'c str> {
        self.of.get(function.0 as usize).copied().flatten()
    }

    /// The place of the innermost function that has a kind, in frames, root first.
    pub(crate) fn innermost(&self, frames: &[FunctionId]) -> Option<usize> {
        frames.iter().rposition(|&f| self.of(f).is_some())
    }
}

/// The time of a category.
#[derive(Default)]
struct Sum {
    weight: u64,
    n_samples: u64,
    callers: HashMap<FunctionId, u64, FastState>,
}
