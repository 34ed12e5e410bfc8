//! A profile to the health of its names: of each module, what has one and how much time has not.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;
use wcprof_profile::model::Profile;

use super::nodes::micros;
use super::strings::Strings;

/// Most modules on a page, those with the most time first.
const MAX_MODULES: usize = 150;

/// The names of one module.
#[derive(Debug, Serialize)]
pub(super) struct ModuleOut {
    name: u32,
    /// Build-ids of the modules of this name.
    build_ids: Vec<String>,
    /// Functions seen.
    n_functions: usize,
    /// Those without a name.
    n_unnamed: usize,
    /// Time of the stacks that pass through it, idle time included.
    us: u64,
    /// Time of the stacks with at least one of its functions without a name.
    unnamed_us: u64,
}

#[derive(Default)]
struct Sums {
    functions: usize,
    unnamed: usize,
    ns: u64,
    unnamed_ns: u64,
}

/// The modules that stacks pass through, those with most time without names first; and how many more
/// there are.
pub(super) fn modules(profile: &Profile, strings: &mut Strings) -> (Vec<ModuleOut>, usize) {
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for function in &profile.functions {
        let sum = sums.entry(&function.module).or_default();
        sum.functions += 1;
        sum.unnamed += usize::from(!function.resolved);
    }
    let mut by_stack = vec![0_u64; profile.stacks.len()];
    for row in &profile.rows {
        let stack = row.stack.and_then(|id| by_stack.get_mut(id.0 as usize));
        if let Some(sum) = stack {
            *sum = sum.saturating_add(row.weight);
        }
    }
    let (mut through, mut unnamed) = (HashSet::new(), HashSet::new());
    for (stack, ns) in profile.stacks.iter().zip(by_stack) {
        through.clear();
        unnamed.clear();
        for id in &stack.frames {
            let Some(function) = profile.functions.get(id.0 as usize) else {
                continue;
            };
            through.insert(function.module.as_str());
            if !function.resolved {
                unnamed.insert(function.module.as_str());
            }
        }
        for module in &through {
            if let Some(sum) = sums.get_mut(module) {
                sum.ns = sum.ns.saturating_add(ns);
                if unnamed.contains(module) {
                    sum.unnamed_ns = sum.unnamed_ns.saturating_add(ns);
                }
            }
        }
    }
    let mut ids: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for module in &profile.modules {
        if let Some(id) = &module.build_id {
            ids.entry(&module.name).or_default().insert(id.to_string());
        }
    }
    let mut list: Vec<_> = sums.into_iter().filter(|(_, sum)| sum.ns > 0).collect();
    list.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.unnamed_ns, sum.ns)));
    let n_more = list.len().saturating_sub(MAX_MODULES);
    let list = list.into_iter().take(MAX_MODULES).map(|(name, sum)| {
        let of_name = ids.get(name).into_iter().flatten();
        ModuleOut {
            name: strings.id(if name.is_empty() { "(no module)" } else { name }),
            build_ids: of_name.take(2).map(|id| strings.clean(id)).collect(),
            n_functions: sum.functions,
            n_unnamed: sum.unnamed,
            us: micros(sum.ns),
            unnamed_us: micros(sum.unnamed_ns),
        }
    });
    (list.collect(), n_more)
}
