//! Functions to ones with other names.

use indexmap::IndexSet;

use crate::model::{FunctionId, Profile};

/// Gives functions with a symbol the name that `rename` makes of their own, and merges functions that are equal
/// then. Rules must be applied before: they are about full names.
pub fn rename_functions(profile: &mut Profile, rename: impl Fn(&str) -> String) {
    let mut functions = IndexSet::new();
    let old = std::mem::take(&mut profile.functions).into_iter();
    let new_ids: Vec<FunctionId> = old
        .map(|mut function| {
            if function.resolved {
                function.name = rename(&function.name);
            }
            FunctionId(functions.insert_full(function).0 as u32)
        })
        .collect();
    profile.functions = functions.into_iter().collect();
    for frame in profile.stacks.iter_mut().flat_map(|s| &mut s.frames) {
        *frame = new_ids[frame.0 as usize];
    }
}
