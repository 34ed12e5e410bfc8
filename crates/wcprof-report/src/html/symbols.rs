//! A profile to the health of its names: of each module, what has one and how much time has not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};
use wcprof_profile::model::Profile;

use super::nodes::micros;
use super::strings::Strings;

/// Most modules on a page, those with the most time first.
const MAX_MODULES: usize = 150;

#[derive(Default)]
struct Sums {
    n_functions: usize,
    /// Those without a name.
    n_unnamed: usize,
    /// Time of the stacks that pass through the module, idle time included.
    ns: u64,
    /// Time of the stacks with at least one of its functions without a name.
    unnamed_ns: u64,
}

/// The modules that stacks pass through, those with most time without names first; and how many more
/// there are. Build-ids are those of the modules of that name.
pub(super) fn modules(profile: &Profile, strings: &mut Strings) -> (Vec<Value>, usize) {
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for function in &profile.functions {
        let sum = sums.entry(&function.module).or_default();
        sum.n_functions += 1;
        sum.n_unnamed += usize::from(!function.resolved);
    }
    let mut by_stack = vec![0_u64; profile.stacks.len()];
    for row in &profile.rows {
        if let Some(id) = row.stack {
            let sum = &mut by_stack[id.0 as usize];
            *sum = sum.saturating_add(row.weight);
        }
    }
    // The modules of a stack, and whether a function of each has no name.
    let mut modules: HashMap<&str, bool> = HashMap::new();
    for (stack, ns) in profile.stacks.iter().zip(by_stack) {
        modules.clear();
        for id in &stack.frames {
            let function = &profile.functions[id.0 as usize];
            *modules.entry(&function.module).or_default() |= !function.resolved;
        }
        for (module, is_unnamed) in &modules {
            let sum = sums.entry(module).or_default();
            sum.ns = sum.ns.saturating_add(ns);
            if *is_unnamed {
                sum.unnamed_ns = sum.unnamed_ns.saturating_add(ns);
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
    list.sort_by_key(|(_, sum)| Reverse((sum.unnamed_ns, sum.ns)));
    let n_more = list.len().saturating_sub(MAX_MODULES);
    let list = list.into_iter().take(MAX_MODULES).map(|(name, sum)| {
        let build_ids = ids.get(name).into_iter().flatten().take(2);
        json!({
            "name": strings.id(if name.is_empty() { "(no module)" } else { name }),
            "build_ids": build_ids.map(|id| strings.clean(id)).collect::<Vec<_>>(),
            "n_functions": sum.n_functions,
            "n_unnamed": sum.n_unnamed,
            "us": micros(sum.ns),
            "unnamed_us": micros(sum.unnamed_ns),
        })
    });
    (list.collect(), n_more)
}
