//! Functions to ones with other names.

use std::collections::HashMap;

use crate::model::{Function, FunctionId, Profile};

/// Gives functions with a symbol the name that `rename` makes of their own, and merges functions that are equal
/// then. Rules must be applied before: they are about full names.
pub fn rename_functions(profile: &mut Profile, rename: impl Fn(&str) -> String) {
    let mut ids: HashMap<Function, FunctionId> = HashMap::new();
    let mut functions = Vec::new();
    let mut new_ids = Vec::with_capacity(profile.functions.len());
    for mut function in std::mem::take(&mut profile.functions) {
        if function.resolved {
            function.name = rename(&function.name);
        }
        let id = *ids.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            FunctionId(functions.len() as u32 - 1)
        });
        new_ids.push(id);
    }
    profile.functions = functions;
    for frame in profile.stacks.iter_mut().flat_map(|s| &mut s.frames) {
        *frame = new_ids[frame.0 as usize];
    }
}
